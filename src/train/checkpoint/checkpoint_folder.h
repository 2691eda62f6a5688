#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Folder of checkpoints: <run.dir>/ckpt with one directory per round, and the file LATEST, which
/// names one. Each of several workers has such a folder (worker_checkpoints.h).

inline constexpr const char* checkpoint_manifest_name = "manifest.json";
inline constexpr const char* checkpoint_state_name = "state.json";
inline constexpr const char* checkpoint_job_name = "job.yaml";
inline constexpr const char* checkpoint_format = "loratrain-checkpoint-1";  ///< of manifests

std::filesystem::path checkpoint_folder(const Job& job);

/// The text of LATEST in `folder`; "" if there is none.
std::string latest_round(const std::filesystem::path& folder);
void set_latest_round(const std::filesystem::path& folder, std::int32_t round);
void remove_latest_round(const std::filesystem::path& folder);

/// The round that a directory is named by; -1 for other names.
std::int64_t round_of(const std::string& name);

/// Rounds of the complete checkpoints in `folder`, newest first.
std::vector<std::int64_t> stored_rounds(const std::filesystem::path& folder);

/// The checkpoint that LATEST names, else the newest; "" if there is none.
std::filesystem::path newest_stored(const std::filesystem::path& folder);

/// The files of the complete checkpoints in a folder, by their manifests, each of which is read
/// once.
class StoredFiles {
  public:
    explicit StoredFiles(const std::filesystem::path& folder);

    /// newest_stored().
    const std::filesystem::path& newest() const { return newest_; }
    /// Of a file of the newest checkpoint; "" if no manifest that can be read has it.
    std::string checksum(const std::string& name) const;

    /// Copies a file of the newest checkpoint into directory `target`. If it is damaged, an equal
    /// file of an earlier checkpoint is copied. Returns its checksum; "" if all are damaged.
    std::string copy(const std::string& name, const std::filesystem::path& target) const;

  private:
    using Checksums = std::map<std::string, std::string>;
    std::vector<std::pair<std::filesystem::path, Checksums>> checkpoints_;  ///< newest first
    std::filesystem::path newest_;
    Checksums checksums_;  ///< of the newest
};

}  // namespace loratrain

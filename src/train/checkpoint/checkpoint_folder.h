#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Where checkpoints are: <run.dir>/ckpt, one directory per round, and LATEST, which names one; of
/// workers a folder like that each (worker_checkpoints.h).

inline constexpr const char* checkpoint_manifest_name = "manifest.json";
inline constexpr const char* checkpoint_state_name = "state.json";
inline constexpr const char* checkpoint_job_name = "job.yaml";
inline constexpr const char* checkpoint_format = "loratrain-checkpoint-1";  ///< of manifests

std::filesystem::path checkpoint_folder(const Job& job);

/// What LATEST in `folder` says; "" when there is none.
std::string latest_round(const std::filesystem::path& folder);
void set_latest_round(const std::filesystem::path& folder, std::int32_t round);
void remove_latest_round(const std::filesystem::path& folder);

/// -1 when the name is no round.
std::int64_t round_of(const std::string& name);

/// Rounds whose checkpoints in `folder` were completed, newest first.
std::vector<std::int64_t> stored_rounds(const std::filesystem::path& folder);

/// The checkpoint of the round that LATEST says, else the newest; "" = there is none.
std::filesystem::path newest_stored(const std::filesystem::path& folder);

/// What the manifest of a checkpoint says of one of its files; "" = nothing that can be read.
std::string stored_checksum(const std::filesystem::path& checkpoint, const std::string& name);

/// Copies a file that the newest checkpoint of `folder` has into directory `target`: from there, or
/// where it is damaged there from one before that has the same. False where all are damaged.
bool copy_stored(const std::filesystem::path& folder, const std::string& name,
                 const std::filesystem::path& target);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Where checkpoints are: <run.dir>/ckpt, one directory per round, and LATEST, which names one.

inline constexpr const char* checkpoint_manifest_name = "manifest.json";
inline constexpr const char* checkpoint_state_name = "state.json";
inline constexpr const char* checkpoint_job_name = "job.yaml";
inline constexpr const char* checkpoint_format = "loratrain-checkpoint-1";  ///< of manifests

std::filesystem::path checkpoint_folder(const Job& job);

/// What LATEST says; "" when there is none.
std::string latest_round(const Job& job);
void set_latest_round(const Job& job, std::int32_t round);

/// -1 when the name is no round.
std::int64_t round_of(const std::string& name);

/// Rounds whose checkpoints were completed, newest first.
std::vector<std::int64_t> stored_rounds(const Job& job);

}  // namespace loratrain

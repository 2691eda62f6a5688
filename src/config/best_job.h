#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// A job in `run_dir` that trains these of its adapters alone, the best of a sweep say; on
/// one pipeline where workers trained them.
Job job_of_best(const Job& job, const std::vector<AdapterId>& best, const std::string& run_dir);

}  // namespace loratrain

#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// The job with only the adapters `best`, for instance the best of a sweep, and with run.dir
/// `run_dir`. If workers trained them, the deployment is left open.
Job job_of_best(const Job& job, const std::vector<AdapterId>& best, const std::string& run_dir);

}  // namespace loratrain

#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// The job with only these of its adapters, for instance the best of a sweep, and with run.dir
/// `run_dir`. Where workers trained them it leaves the deployment open.
Job job_of_best(const Job& job, const std::vector<AdapterId>& best, const std::string& run_dir);

}  // namespace loratrain

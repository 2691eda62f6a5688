#pragma once

#include <string>
#include <vector>

#include "plan/deploy/make_plan.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain::fuzz {

/// A small job with its plan, as a run of it would have them.
struct SampleRun {
    explicit SampleRun(const std::string& run_dir);

    Job job;
    ModelSpec model;
    std::vector<DatasetInfo> datasets;
    Cluster cluster;
    Plan plan;
    RunIdentity identity;
};

/// A job file with most keys, in block style.
std::string sample_job_text(const std::string& run_dir);
/// What may be put into the inbox of that job.
std::string sample_inbox_text();

}  // namespace loratrain::fuzz

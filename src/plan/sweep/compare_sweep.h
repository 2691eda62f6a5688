#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/sweep/deploy_sweep.h"
#include "plan/sweep/job_planner.h"
#include "plan/sweep/sweep_baselines.h"

namespace loratrain {

/// A sweep's plan beside other ways of training the same trials on the same ranks; all by one model
/// of costs.
struct SweepComparison {
    SweepDeployment deployment;
    std::optional<BaselineTime> min_gpu;
    std::optional<BaselineTime> max_gpu;
    std::optional<JobSchedule> packed_jobs;   ///< DTM and job planner
    std::optional<SweepOption> one_pipeline;  ///< all ranks as stages of one, refilled
    std::optional<double> eager_peft;         ///< seconds, as Min-GPU

    /// How many times as fast as Min-GPU; 0 where either is missing.
    double gain(double seconds) const;
};

/// Deploys the sweep and computes the others. Packed jobs have tensor-parallel degrees, powers of
/// two; of those by the paper's values, ranks, and by seconds alone, each with microbatches of
/// every size that is looked at, the fastest schedule counts.
SweepComparison compare_sweep(const SweepTask& task, const AssignLimits& limits = {});

}  // namespace loratrain

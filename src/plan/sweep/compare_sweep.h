#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/sweep/deploy_sweep.h"
#include "plan/sweep/job_planner.h"
#include "plan/sweep/simulate_sweep.h"
#include "plan/sweep/sweep_shapes.h"

namespace loratrain {

/// A sweep's plan beside the baselines of PLoRA's paper.

/// Seconds of all trials on `replicas` equal replicas, each trial alone (PLoRA, section 7.1): the
/// longest first, on the replica that is free first. `alone`: per class, seconds of a trial.
double alone_makespan(std::span<const double> alone, std::span<const std::int32_t> counts,
                      std::int32_t replicas);

/// Per class: seconds of a trial alone in the replica, with evaluations and export.
std::vector<double> alone_seconds_of_all(const SweepReplica& replica, const SweepRules& rules);

struct BaselineTime {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int32_t replicas = 1;
    double seconds = 0.0;
};

/// Baseline Min-GPU: each trial alone on the fewest ranks that hold every trial and the whole base,
/// without streamed layers. None if no trial fits.
std::optional<BaselineTime> min_gpu(const SweepTask& task, SweepShapes& shapes);
/// Baseline Max-GPU: one trial after the other on all ranks, with as many lanes as can share the
/// model.
std::optional<BaselineTime> max_gpu(const SweepTask& task, SweepShapes& shapes);

/// Seconds of a step of eager PEFT on a GPU. For llama-3.1-8b on an H200
///   max(3.0 ms per layer, 25 ms + 106 us per token),
/// measured at 512 to 8192 tokens and r = 16; below, the first term is extrapolated. For other
/// models and devices the second term is scaled by the parameters in matrix products and the
/// device's seconds per token. None without a GPU.
std::optional<double> eager_step_seconds(const ModelSpec& model, const Cluster& cluster,
                                         double tokens);

/// Seconds of eager PEFT as Min-GPU on `replicas` replicas of as few GPUs as hold it. Evaluations
/// and padding are not counted.
std::optional<double> eager_makespan(const SweepTask& task, std::int32_t replicas);

/// A sweep's plan and other ways to train the same trials on the same ranks, by one cost model. Dry
/// runs print it (--compare).
struct SweepComparison {
    SweepDeployment deployment;
    std::optional<BaselineTime> min_gpu;
    std::optional<BaselineTime> max_gpu;
    std::optional<JobSchedule> packed_jobs;   ///< PLoRA's Algorithms 1 and 2
    std::optional<SweepOption> one_pipeline;  ///< all ranks as stages of one pipeline, refilled
    std::optional<double> eager_peft;         ///< seconds, as Min-GPU
    /// Speed-up over Min-GPU; 0 if either is missing.
    double gain(double seconds) const;
};

/// Deploys the sweep and computes the baselines. Packed jobs have tensor-parallel degrees that are
/// powers of two. The fastest of several schedules counts: with the paper's values (ranks) and with
/// seconds as values, each with microbatches of all sizes.
SweepComparison compare_sweep(const SweepTask& task, const AssignLimits& limits = {});

}  // namespace loratrain

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

/// Trials one after another on `replicas` equal replicas (PLoRA, section 7.1), each alone: the
/// longest first, to the replica that is free first. `alone`: seconds of a trial of each class.
double alone_makespan(std::span<const double> alone, std::span<const std::int32_t> counts,
                      std::int32_t replicas);

/// What a trial of each class takes alone in the replica, evaluations and export included.
std::vector<double> alone_seconds_of_all(const SweepReplica& replica, const SweepRules& rules);

struct BaselineTime {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int32_t replicas = 1;
    double seconds = 0.0;
};

/// Min-GPU: each trial alone on the fewest ranks that hold every one of them and the whole base: of
/// which no layer streams. None where no trial fits.
std::optional<BaselineTime> min_gpu(const SweepTask& task, SweepShapes& shapes);
/// Max-GPU: one trial after the other on all ranks, with as many lanes as can share the model.
std::optional<BaselineTime> max_gpu(const SweepTask& task, SweepShapes& shapes);

/// What a step of eager PEFT takes on a GPU: for llama-3.1-8b on an H200
///   max(3.0 ms a layer, 25 ms + 106 us a token)
/// (measured at 512 to 8192 tokens and r = 16; below, the first term is extrapolated), the second
/// by the model's parameters in matrix products, and by what a token's products take on the device.
/// None without a GPU.
std::optional<double> eager_step_seconds(const ModelSpec& model, const Cluster& cluster,
                                         double tokens);

/// Eager PEFT as Min-GPU, on `replicas` of as many GPUs as its own Min-GPU takes; evaluations and
/// padding not counted.
std::optional<double> eager_makespan(const SweepTask& task, std::int32_t replicas);

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

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "config/job.h"
#include "plan/costs.h"
#include "plan/deploy/make_plan.h"
#include "plan/plan.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// A job for CUDA ranks whose layers stream, or will where they do not fit.
struct StreamingTask {
    const Job& job;
    std::span<const DatasetInfo> datasets;
    const Cluster& cluster;
    const Plan* former;  ///< as plan_job()'s
    /// The job as it says, or none where it does not fit. `tried`: the plan is not to be carried
    /// out, however much of the host's memory it takes.
    std::function<std::optional<PlannedJob>(const Job&, bool tried)> plan;
    /// Built-in costs of a job's plan, of so many lanes.
    std::function<CostModel(const Job&, const Plan&, std::int32_t tensor)> costs;
    /// Tokens a second of a plan that is complete, as whole_job_speed() has it.
    std::function<double(const Plan&, const SpeedLimits&)> speed;
};

/// The job's plan with the sizes that are fastest beside streaming layers. A base that does not fit
/// (`fits`: whether all does) and a job that lets layers stream do so too; replicas hold it between
/// them where they can, and where `offload: auto` lets activations go to the host beside that, the
/// size of microbatches is chosen with it. Of one pipeline whose sizes are free, and which is soon
/// predicted, sizes are compared by what is predicted of them, where they may come to more than
/// `least` tokens a second. None where nothing is to be chosen, or nothing fits.
std::optional<PlannedJob> plan_streaming(const StreamingTask& task, bool fits, double least = 0.0);

/// Whether layers of some replica of the plan stream.
bool streams(const Plan& plan);

/// Whether the plan's only replica recomputes, though neither the job nor memory asks for it where
/// layers stream; or has smaller microbatches than are `wanted`, for want of memory, and other ones
/// are soon predicted.
bool may_gain_by_streaming(const Job& job, const PlannedJob& planned, std::int64_t wanted);

/// Tokens of microbatches that are not given, for a job whose layers stream: at least `usual`, or
/// those behind which layers come. `plan`: its model and formats. `replicas`: as they are asked
/// for.
std::optional<std::int64_t> wide_enough_to_hide(const Job& job, const Plan& plan,
                                                const Cluster& cluster,
                                                std::span<const ReplicaJob> replicas,
                                                std::optional<std::int64_t> usual);

}  // namespace loratrain

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

/// Plans jobs whose layers stream.

/// A job for CUDA ranks whose layers stream, or may stream if the base does not fit.
struct StreamingTask {
    const Job& job;
    std::span<const DatasetInfo> datasets;
    const Cluster& cluster;
    const Plan* former;  ///< as in plan_job()
    /// Plans a job; none if it does not fit. `tried`: the plan is only compared, so it may take any
    /// amount of host memory.
    std::function<std::optional<PlannedJob>(const Job&, bool tried)> plan;
    /// Built-in costs of a job's plan with `tensor` lanes.
    std::function<CostModel(const Job&, const Plan&, std::int32_t tensor)> costs;
    /// Tokens/s of a complete plan, as whole_job_speed() predicts it.
    std::function<double(const Plan&, const SpeedLimits&)> speed;
};

/// Plans the job with the sizes that are fastest while layers stream. None if there is nothing to
/// choose, or nothing fits.
/// - Layers stream if the job says so, or if it leaves residency open and the base does not fit
///   (`fits`: whether it does).
/// - Replicas of a given deployment hold the base between them if they can; otherwise layers come
///   from host memory.
/// - If replicas hold the base between them and the job has `offload: auto`, the size of
///   microbatches is chosen together with the offload.
/// - Sizes of one pipeline are compared by simulation. If they are free and the job is soon
///   predicted, they are compared by their predictions, and only sizes that may reach more than
///   `least` tokens/s.
std::optional<PlannedJob> plan_streaming(const StreamingTask& task, bool fits, double least = 0.0);

/// Whether layers of some replica of the plan stream.
bool streams(const Plan& plan);

/// Whether streaming layers may make the plan's only replica faster. True if
/// - it recomputes, and neither the job nor memory would require that with streamed layers; or
/// - for want of memory its microbatches have fewer tokens than `wanted`, and other sizes are soon
///   predicted.
bool may_gain_by_streaming(const Job& job, const PlannedJob& planned, std::int64_t wanted);

/// Tokens of a microbatch for a job whose layers stream and which gives no microbatch_tokens: at
/// least `usual`, and enough for the computation to hide the transfers. Returns `usual` if no
/// layers stream. `plan`: gives model and formats. `replicas`: the deployment that the job asks
/// for.
std::optional<std::int64_t> wide_enough_to_hide(const Job& job, const Plan& plan,
                                                const Cluster& cluster,
                                                std::span<const ReplicaJob> replicas,
                                                std::optional<std::int64_t> usual);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/job.h"
#include "plan/deploy/make_plan.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// What a policy would do with a job.
struct PolicyPrediction {
    SchedulePolicy policy = SchedulePolicy::balanced;
    std::optional<Prediction> prediction;  ///< none = the job does not fit with it
    /// With as many microbatches in flight as stages, as mLoRA's paper has it; none where the plan
    /// has no more, or it is another policy.
    std::optional<Prediction> as_published = std::nullopt;
};

/// Plans and predicts the job with every other policy in turn, in the order of SchedulePolicy;
/// `own` is what predict() says of the job as it is.
std::vector<PolicyPrediction> compare_policies(const Job& job, const ModelSpec& model,
                                               std::span<const DatasetInfo> datasets,
                                               const Cluster& cluster, std::int32_t rounds,
                                               const Prediction& own);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/deploy/search_deployments.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// What a deployment would do with a job.
struct DeploymentPrediction {
    std::vector<ReplicaJob> deployment;    ///< as parallel.deployment has it
    std::optional<Prediction> prediction;  ///< none = the job does not fit
};

struct DeploymentComparison {
    std::vector<DeploymentPrediction> predictions;  ///< the plan's own one, then the fastest
    std::int64_t options = 0;                       ///< ways of cutting a replica that fit
    DeploymentSearch search;
};

/// The plan's own deployment beside the best other ones that were found for as many ranks, at most
/// `most` of them (replica_options.h, search_deployments.h), each planned and predicted, all of
/// them with built-in costs: others are not known of deployments that never ran. Empty with one
/// rank.
DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, std::int32_t rounds,
                                         std::size_t most);

}  // namespace loratrain

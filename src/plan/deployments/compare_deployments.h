#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/deployments/find_deployments.h"

namespace loratrain {

struct DeploymentComparison {
    std::vector<DeploymentPrediction> predictions;  ///< the plan's own one, then the fastest
    FoundDeployments found;
};

/// The plan's own deployment beside the best other ones that were `found` for as many ranks, at
/// most `most`, all predicted with built-in costs: others are not known of deployments that never
/// ran. `own` is what predict() says of the plan in as many rounds.
DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, FoundDeployments found,
                                         const Prediction& own, std::int32_t rounds = 16,
                                         std::size_t most = 3);

}  // namespace loratrain

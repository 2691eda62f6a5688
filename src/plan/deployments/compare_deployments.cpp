#include "plan/deployments/compare_deployments.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/deploy/make_plan.h"

namespace loratrain {

namespace {

std::optional<Prediction> predicted_own(const Job& job, const Plan& plan,
                                        std::span<const DatasetInfo> datasets, Cluster cluster,
                                        const Prediction& own, std::int32_t rounds) {
    if (!cluster.costs) return own;
    cluster.costs.reset();
    try {
        return predict(job, make_plan(job, plan.model, datasets, cluster), datasets, rounds);
    } catch (const InputError&) {
        return std::nullopt;
    }
}

}  // namespace

DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, FoundDeployments found,
                                         const Prediction& own, std::int32_t rounds,
                                         std::size_t most) {
    DeploymentComparison comparison;
    const std::vector<ReplicaJob> cuts = deployment_of(plan, 0);
    comparison.predictions.push_back(
        {cuts, predicted_own(job, plan, datasets, cluster, own, rounds)});
    comparison.found = std::move(found);
    for (const DeploymentPrediction& entry : comparison.found.fastest) {
        if (comparison.predictions.size() > most) break;
        if (!same_cuts(entry.deployment, cuts)) comparison.predictions.push_back(entry);
    }
    return comparison;
}

}  // namespace loratrain

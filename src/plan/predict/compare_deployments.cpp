#include "plan/predict/compare_deployments.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/deploy/make_plan.h"
#include "plan/deploy/replica_options.h"

namespace loratrain {

namespace {

using Entries = std::vector<ReplicaJob>;

/// Replicas that are cut alike are one entry.
Entries entries_of(const Plan& plan) {
    Entries entries;
    for (const ReplicaPlan& replica : plan.replicas) {
        const auto stages = static_cast<int>(replica.stages.size());
        const bool alike = !entries.empty() && entries.back().tensor == replica.tensor &&
                           entries.back().stages == stages;
        if (alike) {
            ++entries.back().count;
        } else {
            entries.push_back({replica.tensor, stages, 1, {}});
        }
    }
    return entries;
}

/// In the order that number_ranks gives replicas, entries of as many stages together.
Entries entries_of(const OptionCounts& counts, const Entries& options) {
    Entries entries;
    for (std::size_t i = 0; i < options.size(); ++i) {
        if (counts.replicas[i] == 0) continue;
        entries.push_back(options[i]);
        entries.back().count = counts.replicas[i];
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.tensor > b.tensor; });
    return entries;
}

/// Whether replicas are cut alike, in whatever order.
bool same_cuts(const Entries& one, const Entries& other) {
    return std::is_permutation(
        one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
            return a.tensor == b.tensor && a.stages == b.stages && a.count == b.count;
        });
}

double predicted_speed(const DeploymentPrediction& entry) {
    return entry.prediction ? entry.prediction->tokens_per_second() : 0.0;
}

}  // namespace

DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, std::int32_t rounds,
                                         std::size_t most) {
    DeploymentComparison found;
    if (cluster.ranks == 1) return found;
    Cluster unmeasured = cluster;
    unmeasured.costs.reset();
    const auto add = [&](const Entries& entries, const Job& deployed) {
        DeploymentPrediction& entry = found.predictions.emplace_back();
        entry.deployment = entries;
        try {
            const Plan its = make_plan(deployed, plan.model, datasets, unmeasured);
            entry.prediction = predict(deployed, its, datasets, rounds);
        } catch (const InputError&) {
            return;
        }
    };
    const DeploymentOptions options = replica_options(job, plan, datasets, unmeasured);
    found.options = std::ssize(options.replicas);
    found.search = search_deployments(options.task);
    const Entries own = entries_of(plan);
    add(own, job);
    for (const OptionCounts& counts : found.search.solved) {
        if (found.predictions.size() > most) break;
        const Entries entries = entries_of(counts, options.replicas);
        if (same_cuts(entries, own)) continue;
        Job deployed = job;
        deployed.parallel.pipeline_stages.reset();
        deployed.parallel.deployment = entries;
        add(entries, deployed);
    }
    std::stable_sort(
        found.predictions.begin() + 1, found.predictions.end(),
        [](const auto& a, const auto& b) { return predicted_speed(a) > predicted_speed(b); });
    return found;
}

}  // namespace loratrain

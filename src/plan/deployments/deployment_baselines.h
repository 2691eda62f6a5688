#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/deployments/find_deployments.h"

namespace loratrain {

/// A way to train the adapters of a job on all ranks of a cluster (LobRA, PVLDB 18(8), 2025,
/// section 5.1).
struct Baseline {
    std::string name;
    std::vector<ReplicaJob> deployment;  ///< empty: each adapter has its own
    /// GPU-seconds of a round: ranks times the seconds of the whole job as predict() has them, of
    /// one adapter after another their sum, by the steps of the adapter with most; 0 = it cannot be
    /// done.
    double rank_seconds = 0.0;
};

/// Ranks up to which all ways of cutting them alike are simulated.
inline constexpr int most_tried_ranks = 16;
/// Adapters up to which those that train one after the other are simulated too.
inline constexpr std::size_t most_alone = 8;

/// GPU-seconds per round of the job, by built-in costs, of
/// - Task-Fused: the best replicas that are all cut alike, dispatch: uniform; above
///   most_tried_ranks, where trying all takes too long, of the best three found that fit, if any;
/// - Task-Sequential: each adapter alone in the best three such deployments that are found, summed;
/// - LobRA-Sequential: each alone, replicas that may differ, balanced;
/// - balanced: the best deployment, of those that are predicted in `found` the fastest;
/// length-based:
///   the same with `dispatch: length`.
/// `found`: of the job. Those alone are left out above most_alone adapters.
std::vector<Baseline> compare_baselines(const Job& job, const ModelSpec& model,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster, const FoundDeployments& found,
                                        std::int32_t rounds = 16);

/// What a round of the job takes, as Baseline::rank_seconds; 0 where the job does not fit.
/// `rounds`: that are played.
double round_rank_seconds(const Job& job, const ModelSpec& model,
                          std::span<const DatasetInfo> datasets, const Cluster& cluster,
                          std::int32_t rounds);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/find_deployments.h"
#include "plan/predict/predict.h"

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

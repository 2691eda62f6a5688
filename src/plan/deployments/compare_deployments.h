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

/// The tables of --compare: other deployments, policies and ways to train.

/// The plan's deployment beside other ones.
struct DeploymentComparison {
    std::vector<DeploymentPrediction> predictions;  ///< the plan's own one, then the fastest
    FoundDeployments found;
};

/// Compares the plan's own deployment with the best others that were `found` for as many ranks, at
/// most `most`. All predictions use built-in costs, because nothing is measured of deployments that
/// never ran. `own`: the prediction of the plan by predict(), in as many rounds.
DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, FoundDeployments found,
                                         const Prediction& own, std::int32_t rounds = 16,
                                         std::size_t most = 3);

/// What the job would do with another policy.
struct PolicyPrediction {
    SchedulePolicy policy = SchedulePolicy::balanced;
    std::optional<Prediction> prediction;  ///< none = the job does not fit with this policy
    /// With as many microbatches in flight as stages, as in mLoRA's paper. None for other policies,
    /// or if the plan has no more in flight.
    std::optional<Prediction> as_published = std::nullopt;
};

/// Plans and predicts the job with every policy, in the order of SchedulePolicy. `own`: the
/// prediction of the job as it is, by predict().
std::vector<PolicyPrediction> compare_policies(const Job& job, const ModelSpec& model,
                                               std::span<const DatasetInfo> datasets,
                                               const Cluster& cluster, std::int32_t rounds,
                                               const Prediction& own);

/// A way to train a job's adapters on all ranks of a cluster (LobRA, PVLDB 18(8), 2025, section
/// 5.1).
struct Baseline {
    std::string name;
    std::vector<ReplicaJob> deployment;  ///< empty: each adapter has its own deployment
    /// GPU-seconds per round: ranks x seconds of the whole job as predict() gives them / steps of
    /// the adapter with most steps. For one adapter after another the seconds are summed. 0 =
    /// impossible.
    double rank_seconds = 0.0;
};

/// Most ranks for which every way to cut them into equal replicas is simulated.
inline constexpr int most_tried_ranks = 16;
/// Most adapters for which training one after another is simulated too.
inline constexpr std::size_t most_alone = 8;

/// GPU-seconds per round of the job, by built-in costs. `found`: the deployments found for the job.
///
/// | row | deployment | dispatch |
/// |---|---|---|
/// | Task-Fused | the best replicas that are all cut alike | uniform |
/// | Task-Sequential | each adapter alone, in the best of three such ones; summed | uniform |
/// | LobRA-Sequential | each adapter alone, replicas may differ; summed | balanced |
/// | length-based | as balanced | length |
/// | balanced | the one of `found` that is predicted to be fastest | balanced |
///
/// Above most_tried_ranks, where trying all takes too long, Task-Fused takes the best of three
/// found deployments that fit, if any. Both sequential rows are left out above most_alone adapters.
std::vector<Baseline> compare_baselines(const Job& job, const ModelSpec& model,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster, const FoundDeployments& found,
                                        std::int32_t rounds = 16);

/// GPU-seconds per round of the job, as Baseline::rank_seconds; 0 if the job does not fit.
/// `rounds`: the rounds that are simulated.
double round_rank_seconds(const Job& job, const ModelSpec& model,
                          std::span<const DatasetInfo> datasets, const Cluster& cluster,
                          std::int32_t rounds);

}  // namespace loratrain

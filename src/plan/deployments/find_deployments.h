#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/deploy/make_plan.h"
#include "plan/deploy/replica_options.h"
#include "plan/deployments/search_deployments.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// Finds the fastest deployments of a job.

/// What a deployment would do with a job.
struct DeploymentPrediction {
    std::vector<ReplicaJob> deployment;    ///< as parallel.deployment has it
    std::optional<Prediction> prediction;  ///< none = the job does not fit, or is not worth one
    PlannedJob planned = {};               ///< by built-in costs, where it fits
};

/// What deployments of a job were found for a cluster.
struct FoundDeployments {
    std::vector<DeploymentPrediction> fastest;  ///< by prediction, the fastest first
    std::vector<ReplicaJob> options;            ///< ways of cutting a replica that fit
    DeploymentSearch search;                    ///< among them
    std::int32_t rounds = 0;                    ///< that were played of each
    std::size_t ruled_out = 0;                  ///< of those that would be among the fastest
};

/// Which deployments are worth a prediction.
struct WorthPredicting {
    std::int32_t rounds = 16;    ///< that are played
    std::size_t most = 4;        ///< deployments
    double least_speed = 0.0;    ///< tokens a second that one must be able to reach
    bool fastest_alone = false;  ///< and those of the others before
    bool one_pipeline = true;    ///< of all ranks, with no sizes of its own, too
};

/// The deployments of `cluster.ranks` ranks that end a round first (replica_options.h,
/// search_deployments.h; with `dispatch: uniform` of replicas that all take the longest sample), at
/// most `worth.most` of them, one of which is even where there is one (is_even), each planned and
/// predicted unless most_tokens_per_second(), for all of the job or for what is not played yet of
/// it, says that it is not worth it; all with built-in costs, so that what is found depends on the
/// arguments alone. Beside them, on up to eight GPUs of a host each of which is too small for the
/// base, a replica on each with what `residency` makes of that. Where no replica holds the longest
/// sample beside all adapters, for half as many at once, and so on. Throws InputError for what no
/// deployment mends; empty where none fits.
FoundDeployments find_deployments(const Job& job, const ModelSpec& model,
                                  std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                  const WorthPredicting& worth = {});

/// What this deployment would do, planned and predicted from `rounds` rounds with built-in costs;
/// an empty one is one pipeline of all ranks. What falls behind `least_speed`, also by a few rounds
/// of it (plan_within_reach.h), has no prediction.
DeploymentPrediction predict_deployment(const Job& job, const std::vector<ReplicaJob>& deployment,
                                        const ModelSpec& model,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster, std::int32_t rounds = 16,
                                        double least_speed = 0.0);

/// The job with this deployment.
Job deployed(const Job& job, const std::vector<ReplicaJob>& deployment);

/// The replicas of a plan as parallel.deployment has them; microbatch_tokens where they are fewer
/// than `longest_sample`.
std::vector<ReplicaJob> deployment_of(const Plan& plan, std::int64_t longest_sample);

/// Replicas of these options as parallel.deployment has them, in the order of number_ranks
/// (place.h).
std::vector<ReplicaJob> deployment_of(const OptionCounts& counts,
                                      const std::vector<ReplicaJob>& options);

/// Whether replicas are cut alike, in whatever order and whatever their sizes.
bool same_cuts(const std::vector<ReplicaJob>& one, const std::vector<ReplicaJob>& other);

/// With `deployment: auto` sets the job's deployment: that of `former`, the run that is continued,
/// or null, where it has as many ranks and still fits, else the fastest that is found, of those
/// that come back then. Throws InputError where there is none; does nothing with another key, nor
/// for a new run whose deployment is found already (usual_way.h).
std::optional<FoundDeployments> settle_deployment(Job& job, const ModelSpec& model,
                                                  std::span<const DatasetInfo> datasets,
                                                  const Cluster& cluster, const Plan* former);

}  // namespace loratrain

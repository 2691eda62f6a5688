#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// All ways to cut a replica, from which a search of deployments chooses.

/// A way of cutting a replica, in numbers.
struct ReplicaOption {
    std::int32_t ranks = 1;
    /// Of a sample of each length bucket on the slowest stage; as many as the buckets that it
    /// holds, the shortest ones.
    std::vector<double> seconds;
    /// Seconds of a round in which its last stage waits for the first sample: once for all rounds
    /// that are looked at, or where adapters train one by one once for each.
    double filling = 0.0;
    /// By so much more dispatch takes it to end later, as if it were filled in every round.
    double ahead = 0.0;
    /// Beside other replicas, seconds of a round in which its ranks sum gradients with theirs.
    double exchange = 0.0;
    /// Per bucket of `seconds`, the mean over stages of what one computes of a sample at least:
    /// nothing recomputed, and nothing of what does not grow with a microbatch.
    std::vector<double> least = {};
};

/// Replicas for so many ranks and rounds with so many samples of each length bucket, the shortest
/// first (0 is possible). Some replica must hold the last bucket.
struct DeploymentTask {
    std::int32_t ranks = 1;
    std::vector<double> samples;
    std::vector<ReplicaOption> options;
    /// Per round the samples of each bucket, where more is known than the mean, `samples`.
    std::vector<std::vector<std::int32_t>> rounds = {};
    /// Adapters that train at once: the sums of each go beside what is computed of the others.
    double adapters = 1.0;
    double tokens = 0.0;  ///< of the mean round
};

/// What deployments of a job are searched from.
struct DeploymentOptions {
    DeploymentTask task;
    /// Per option how the job file has it, once; microbatch_tokens where it does not take the
    /// longest samples.
    std::vector<ReplicaJob> replicas;
};

/// All ways of cutting a replica of `plan.model`, which is planned for `cluster`: 2^k lanes that
/// can share a stage (tensor_shard.h), over hosts where these have fewer ranks, and stages up to
/// the layers. Each with layers split by cost (choose_split()), the microbatch that fits beside the
/// adapters admitted first (fit_memory.h; where the longest samples need recomputation also the one
/// that fits without; what does not take a single token is left out; of a replica on all ranks that
/// does not hold the longest sample also what fits beside half as many adapters, and so on), the
/// mean seconds of a sample of each length bucket, and the seconds to fill it (sample_dispatch.h),
/// all with built-in costs. Buckets are those of the first rounds (length_buckets.h), split where a
/// replica's samples end, and the last one ends with the longest sample, evaluation included.
DeploymentOptions replica_options(const Job& job, const Plan& plan,
                                  std::span<const DatasetInfo> datasets, const Cluster& cluster);

/// A replica, and the tokens of the longest sample that it takes.
struct ReplicaRoom {
    ReplicaJob replica;
    std::int64_t tokens = 0;
};

/// The replica of fewest ranks, of those with the fewest stages, that takes samples of so many
/// tokens beside the adapters admitted first; none where none of the cluster's ranks does, or
/// memory is not known. `plan`: as replica_options'.
std::optional<ReplicaRoom> smallest_replica_for(const Job& job, const Plan& plan,
                                                std::span<const DatasetInfo> datasets,
                                                const Cluster& cluster, std::int64_t tokens);

/// "{tp: 2, pp: 1, count: 2, microbatch_tokens: 512}"; a count of 1 and auto are not said.
std::string to_text(const ReplicaJob& replica);

/// "[{tp: 2, pp: 1}, {tp: 1, pp: 1, count: 2, microbatch_tokens: 512}]"
std::string deployment_text(const std::vector<ReplicaJob>& deployment);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/deploy/search_deployments.h"
#include "plan/plan.h"

namespace loratrain {

/// What deployments of a job are searched from.
struct DeploymentOptions {
    DeploymentTask task;
    /// Per option how the job file has it, once; microbatch_tokens where it does not take the
    /// longest samples.
    std::vector<ReplicaJob> replicas;
};

/// All ways of cutting a replica of `plan.model`, which is planned for `cluster`: 2^k lanes that
/// can share a stage (tensor_shard.h) on one host, and stages up to the layers. Each with layers
/// split by cost (choose_split.h), the microbatch that fits beside the adapters admitted first
/// (fit_memory.h; where the longest samples need recomputation also the one that fits without; what
/// does not take a single token is left out), the mean seconds of a sample of
/// each length bucket, and the seconds to fill it (dispatch.h), all with built-in costs. Buckets
/// are those of the first rounds (length_buckets.h), split where a replica's samples end, and the
/// last one ends with the longest sample, evaluation included. On GPUs, where there is one replica
/// so far, only those that take all ranks.
DeploymentOptions replica_options(const Job& job, const Plan& plan,
                                  std::span<const DatasetInfo> datasets, const Cluster& cluster);

}  // namespace loratrain

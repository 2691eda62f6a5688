#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/memory/fit_memory.h"
#include "plan/plan.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Parts of the message for a job that does not fit into memory: what is missing, and what would
/// help.

/// What a rank lacks: "rank 3 (replica 1, stage 0) needs 90.1 GiB (weights ..., ...), but has 80.0
/// GiB, 10.1 GiB too little".
std::string missing_memory(const Plan& plan, std::int32_t rank, std::uint64_t bytes_per_rank);

/// Splits the layers over `stages` stages as the planner does.
using LayerSplit = std::function<std::vector<StagePlan>(std::int32_t stages, Recompute recompute)>;

/// What would make the plan fit: "microbatch_tokens: 512 would fit (now 1024); more than 1 pipeline
/// stages (ranks) make each stage smaller, 3 would fit". If not even the longest sample fits, also
/// the length of a sample that would fit with recompute: layer.
std::string memory_hint(const Job& job, const ReplicaView& view, const FittingTokens& fitting,
                        std::int64_t longest, const LayerSplit& split);

/// What else, beside more stages, would take the longest sample of a job without a deployment: ";
/// so would parallel.deployment: [{tp: 2, pp: 1}] on 2 ranks, for up to 4096 tokens;
/// model.residency: stream would fit, ...". `fits`: whether a job can be planned. It is called with
/// a job whose layers stream and, since both would use the link, without offload.
std::string other_ways_hint(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                            const Cluster& cluster, std::int64_t longest,
                            const std::function<bool(const Job&)>& fits);

/// What would take all samples if none of several replicas does. The text has # in place of the
/// tokens.
std::string larger_replica_hint(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                std::int64_t longest);

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// What a rank is in a deployment.
struct RankPlace {
    std::size_t replica = 0;  ///< of Plan::replicas
    std::size_t stage = 0;    ///< of its stages
    std::int32_t lane = 0;
    friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// A number of each rank's host: Cluster::hosts, or where that is empty, or of other ranks, hosts
/// of `ranks_per_node` each in rank order.
std::vector<std::int32_t> hosts_of(const Cluster& cluster);

/// Orders replicas by falling `tensor`, equal ones as they are, and numbers the ranks of their
/// stages: replicas in that order, or one in which fewer are on several hosts (replica_order.h),
/// then stages, then lanes. What is computed does not depend on the hosts, but on the replicas'
/// order alone. On one host lanes of 2^k are on ranks that start at a multiple of 2^k. `hosts`: of
/// the ranks; none = all on one.
void number_ranks(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts = {});

/// The ranks of replicas, then stages, then lanes.
std::vector<std::int32_t> ranks_in_order(const Plan& plan);

/// Error when the plan has nothing for the rank.
RankPlace place_of(const Plan& plan, int rank);

/// The ranks that exchange messages, the lower one first: each lane with that of the next stage.
std::vector<std::pair<int, int>> neighbours_in(const Plan& plan);

/// A warning for each stage whose lanes are not on one host, as "ranks 2-3 (replica 1, stage 0) are
/// on hosts a and b: ...": the sums of every layer go from host to host there. `hosts`: of the
/// ranks.
std::vector<std::string> stages_over_hosts(const Plan& plan, std::span<const std::string> hosts);

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Where ranks stand in a deployment: replica, stage, lane and host.

/// Place of a rank in a deployment.
struct RankPlace {
    std::size_t replica = 0;  ///< of Plan::replicas
    std::size_t stage = 0;    ///< of its stages
    std::int32_t lane = 0;
    friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Number of each rank's host: Cluster::hosts if it has all ranks, else hosts of `ranks_per_node`
/// ranks each in rank order.
std::vector<std::int32_t> hosts_of(const Cluster& cluster);

/// Sorts replicas by falling `tensor` (stable), and numbers the ranks of their stages: by replica,
/// stage, lane. On several hosts replicas may be numbered in another order, so that fewer of them
/// span hosts (first_ranks()); results depend on the order of `replicas` only. On one host 2^k
/// lanes begin at a multiple of 2^k. `hosts`: per rank; none = all on one.
void number_ranks(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts = {});

/// All ranks by replica, stage, lane.
std::vector<std::int32_t> ranks_in_order(const Plan& plan);

/// The rank's place. Error if the plan has none.
RankPlace place_of(const Plan& plan, int rank);

/// Pairs of ranks that exchange messages, the lower rank first: each lane and its lane in the next
/// stage.
std::vector<std::pair<int, int>> neighbours_in(const Plan& plan);

/// Warnings about stages whose lanes are on several hosts, between which the sums of every layer
/// travel: "ranks 2-3 (replica 1, stage 0) are on hosts a and b: ...". `hosts`: per rank.
std::vector<std::string> stages_over_hosts(const Plan& plan, std::span<const std::string> hosts);

/// Everything that the place of a replica depends on.
struct ReplicaCut {
    std::int32_t tensor = 1;  ///< lanes per stage
    std::int32_t stages = 1;
    std::int32_t ranks() const { return tensor * stages; }
    friend bool operator==(const ReplicaCut&, const ReplicaCut&) = default;
};

/// First rank of each replica. Replicas stand one behind another; each has its ranks by stage, then
/// lane. On one host they are in the given order. On several hosts the order is best that has
/// 1. the fewest stages whose lanes are on several hosts, then
/// 2. the fewest replicas with such stages, then
/// 3. the fewest neighbouring stages on two hosts, then
/// 4. the nearest to the given order.
/// With more than a million states (many unequal replicas) the given order is kept. `hosts`: number
/// of each rank's host; fewer entries than ranks = all on one.
std::vector<std::int32_t> first_ranks(std::span<const ReplicaCut> replicas,
                                      std::span<const std::int32_t> hosts);

}  // namespace loratrain

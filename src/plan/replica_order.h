#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// The order in which replicas get ranks, so that few stages lie on two hosts.

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

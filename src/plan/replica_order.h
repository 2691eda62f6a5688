#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// What the place of a replica depends on.
struct ReplicaCut {
    std::int32_t tensor = 1;  ///< lanes per stage
    std::int32_t stages = 1;
    std::int32_t ranks() const { return tensor * stages; }
    friend bool operator==(const ReplicaCut&, const ReplicaCut&) = default;
};

/// The first rank of each replica, where these stand one behind another on as many ranks as they
/// have, stages then lanes in each: in their order, or where ranks are on several hosts in that
/// with the fewest stages whose lanes are on more than one, then the fewest such replicas, then the
/// fewest neighbours on two; of several the nearest to their order. In their order too where there
/// are too many orders of unlike replicas (more than a million states). `hosts`: a number of the
/// host of each rank; of fewer ranks than the replicas have = all on one.
std::vector<std::int32_t> first_ranks(std::span<const ReplicaCut> replicas,
                                      std::span<const std::int32_t> hosts);

}  // namespace loratrain

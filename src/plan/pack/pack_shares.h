#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// Packs each replica's share of a round.

/// An adapter that several replicas train.
struct SharedAdapter {
    std::int64_t tokens = 0;        ///< of a mean step
    double exchange_seconds = 0.0;  ///< of the sum of its gradients
};

/// A round, packed for each replica.
struct PackedShares {
    std::vector<std::vector<Microbatch>> replicas;
    std::vector<AdapterId> ends;  ///< adapters in the order in which their last batch ends
    FillingCounts fillings;
};

/// Packs each replica's share of a round (sample_dispatch.h) by the replica's rules. An adapter's
/// next round waits for the sum of its gradients over replicas. So a round is packed as a whole or,
/// if that takes less time, in two parts one after the other: the computation of one part hides the
/// sums of the other. A part has the same adapters on all replicas and in all rounds. `adapters`:
/// by AdapterId.
PackedShares pack_shares(std::span<const PackRules> rules, std::span<const Round> shares,
                         std::span<const SharedAdapter> adapters);

}  // namespace loratrain

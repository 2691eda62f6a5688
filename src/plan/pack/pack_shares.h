#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// An adapter that several replicas train.
struct SharedAdapter {
    std::int64_t tokens = 0;        ///< of a mean step
    double exchange_seconds = 0.0;  ///< in which its gradients are summed
};

/// A round as replicas have it.
struct PackedShares {
    std::vector<std::vector<Microbatch>> replicas;
    std::vector<AdapterId> ends;  ///< its adapters as their batches end on the last replica
    FillingCounts fillings;
};

/// Packs what each replica, by its rules, has of a round (dispatch.h). An adapter's next round
/// waits for the sum of its gradients over the replicas, so a round is packed as a whole, or where
/// rounds take less time then in two parts one behind the other, each with the same adapters on all
/// replicas and in all rounds of these adapters: what one part computes hides the sums of the
/// other. `adapters`: by AdapterId.
PackedShares pack_shares(std::span<const PackRules> rules, std::span<const Round> shares,
                         std::span<const SharedAdapter> adapters);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace loratrain {

/// Packing of one global batch of a group of adapters: items are its samples, bins microbatches.
/// Pure functions; a bin lists positions of items in ascending order.
using Bins = std::vector<std::vector<std::int32_t>>;

/// First-fit-decreasing: longest item first into the first bin with room. Bins are ordered by
/// falling tokens, so the emptiest one is last. Every item must fit into `capacity` alone.
Bins pack_greedy(std::span<const std::int64_t> tokens, std::int64_t capacity);

/// Fewest bins that the tokens need at least: the larger of the sum's bound and Martello and Toth's
/// L2 (items that cannot share a bin), from at most 64 thresholds.
std::int64_t least_bins(std::span<const std::int64_t> tokens, std::int64_t capacity);

struct FillEffort {
    bool milp = true;      ///< use the solver where there is one
    double seconds = 1.0;  ///< safety limit of one solve; the deterministic limit is built in
};

/// Fewest bins, and among those packings the emptiest last one (LoRAFusion Eq. 3 and 4 without
/// padding multiples, as adapters are routed per token). Greedy first; what bounds prove optimal
/// (in the last bin but for 1/64 of the capacity) is done; then bins filled by subset sums; then
/// MILP 1 and MILP 2 with deterministic limits.
/// Never worse than pack_greedy: fewer bins, or as many and a last one that is not fuller.
/// Bins are ordered by falling tokens.
Bins pack_fewest(std::span<const std::int64_t> tokens, std::int64_t capacity,
                 const FillEffort& effort);

/// An item of pack_even.
struct PackSize {
    std::int64_t tokens = 0;
    std::int64_t cost = 0;  ///< what is to be equal, any unit
};

/// `bins` bins (1 <= bins <= items) whose largest cost is as small as local search makes it: costly
/// items first into the cheapest bin, then moves and swaps with the costliest bin while that lowers
/// it. None when this way a bin would exceed `capacity` tokens or stay empty. Bins are ordered by
/// falling cost.
std::optional<Bins> pack_even(std::span<const PackSize> items, std::int64_t capacity,
                              std::int64_t bins);

/// Positions (ascending) of a subset of `values` whose sum is not above `most` and as near to
/// `target` as possible, among equally near ones one of the earlier values. Exact while `most` is
/// at most `resolution`, otherwise values are rounded up to multiples of most / resolution.
/// Values are positive; dynamic programming on bits,
/// O(values * resolution / 64).
std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace loratrain {

/// Bin packing of samples into microbatches.

/// Bin packing of one global batch of a group of adapters: items are samples, bins are
/// microbatches. A bin lists the places of its items, ascending. All functions are pure.
using Bins = std::vector<std::vector<std::int32_t>>;

/// First-fit-decreasing: the longest item first, into the first bin with room. Bins are ordered by
/// falling tokens, so the emptiest one is last. Every item has to fit into `capacity` alone.
Bins pack_greedy(std::span<const std::int64_t> tokens, std::int64_t capacity);

/// Lower bound of the number of bins: the larger of ceil(sum / capacity) and Martello and Toth's L2
/// (items that cannot share a bin), from at most 64 thresholds.
std::int64_t least_bins(std::span<const std::int64_t> tokens, std::int64_t capacity);

struct FillEffort {
    bool milp = true;      ///< use the solver where there is one
    double seconds = 1.0;  ///< safety limit of one solve; the deterministic limit is built in
};

/// The fewest bins, and among such packings the emptiest last bin (LoRAFusion Eq. 3 and 4 without
/// padding multiples, since adapters are routed per token). Steps: greedy; done if bounds prove it
/// optimal (the last bin to 1/64 of the capacity); bins filled by subset sums; MILP 1 and MILP 2
/// with deterministic limits. Never worse than pack_greedy: fewer bins, or as many and a last one
/// that is not fuller. Bins are ordered by falling tokens.
Bins pack_fewest(std::span<const std::int64_t> tokens, std::int64_t capacity,
                 const FillEffort& effort);

/// An item of pack_even.
struct PackSize {
    std::int64_t tokens = 0;
    std::int64_t cost = 0;  ///< pack_even makes bins equal in cost; any unit
};

/// `bins` bins (1 <= bins <= items) with a small largest cost, by local search: costly items first
/// into the cheapest bin, then moves and swaps with the costliest bin while they lower its cost.
/// None if a bin would exceed `capacity` tokens or stay empty. Bins are ordered by falling cost.
std::optional<Bins> pack_even(std::span<const PackSize> items, std::int64_t capacity,
                              std::int64_t bins);

/// Subset of `values` (positive) whose sum is at most `most` and nearest to `target`; of equally
/// near ones one with earlier values. Returns places, ascending. Exact if most <= resolution;
/// otherwise values are rounded up to multiples of most / resolution. Dynamic programming on bits,
/// O(values * resolution / 64).
/// `room`: memory that calls after each other share.
using SubsetRoom = std::vector<std::uint64_t>;
std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution,
                                         SubsetRoom& room);

}  // namespace loratrain

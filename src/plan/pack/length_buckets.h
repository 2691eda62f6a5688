#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// Buckets of sample lengths.

/// Default number of buckets (LobRA).
inline constexpr std::int32_t default_buckets = 16;

/// Upper bounds of at most `most` (>= 1) buckets, ascending; the last one is the longest length.
/// Every bound is one of the lengths. Padding each length to the next bound adds the fewest tokens
/// (LobRA Eq. 4 over the lengths themselves; dynamic programming, O(most * n log n)). `lengths`:
/// positive, in any order; none gives none.
std::vector<std::int32_t> length_buckets(std::span<const std::int32_t> lengths, std::int32_t most);

/// The least bound that is at least `length`, which must not exceed the last bound.
std::int32_t padded_length(std::span<const std::int32_t> bounds, std::int32_t length);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// Default number of buckets (LobRA).
inline constexpr std::int32_t default_buckets = 16;

/// Upper bounds of at most `most` (>= 1) buckets, ascending, each one of the lengths, the last one
/// the longest, such that padding every length to the next bound adds the fewest tokens: LobRA
/// Eq. 4 over the lengths themselves, dynamic programming in O(most * n log n). Any order of
/// `lengths` (positive); empty for none.
std::vector<std::int32_t> length_buckets(std::span<const std::int32_t> lengths, std::int32_t most);

/// The least bound that is not below `length`; `length` must not exceed the last bound.
std::int32_t padded_length(std::span<const std::int32_t> bounds, std::int32_t length);

}  // namespace loratrain

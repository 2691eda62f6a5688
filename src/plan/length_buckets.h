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

/// What padding to the bounds costs.
struct PadStatistics {
    std::int64_t tokens = 0;  ///< without padding
    std::int64_t padding = 0;
    double share() const {
        return tokens + padding == 0
                   ? 0.0
                   : static_cast<double>(padding) / static_cast<double>(tokens + padding);
    }
};
PadStatistics pad_statistics(std::span<const std::int32_t> bounds,
                             std::span<const std::int32_t> lengths);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// Positions (ascending) of a subset of `values` whose sum is not above `most` and as near to
/// `target` as possible, among equally near ones one of the earlier values. Exact while `most` is
/// at most `resolution`, otherwise values are rounded up to multiples of most / resolution.
/// Values are positive; dynamic programming on bits,
/// O(values * resolution / 64).
std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution);

}  // namespace loratrain

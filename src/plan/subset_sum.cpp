#include "plan/subset_sum.h"

#include <algorithm>
#include <cstdlib>

namespace loratrain {

namespace {

constexpr std::int32_t unreached = -1;

/// Per sum 0 .. most: the first value that completes it from a sum of earlier values.
std::vector<std::int32_t> reach(std::span<const std::int64_t> values, std::int64_t unit,
                                std::size_t most) {
    std::vector<std::int32_t> completed_by(most + 1, unreached);
    std::size_t largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<std::size_t>((values[i] + unit - 1) / unit);
        if (value > most) continue;
        const std::size_t top = std::min(most, largest + value);
        for (std::size_t sum = top; sum >= value; --sum) {
            const std::size_t before = sum - value;
            const bool reached = before == 0 || completed_by[before] != unreached;
            if (reached && completed_by[sum] == unreached) {
                completed_by[sum] = static_cast<std::int32_t>(i);
            }
        }
        largest = top;
    }
    return completed_by;
}

}  // namespace

std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution) {
    if (most <= 0) return {};
    const std::int64_t unit = (most + resolution - 1) / resolution;
    const std::vector<std::int32_t> completed_by =
        reach(values, unit, static_cast<std::size_t>(most / unit));
    std::int64_t best = 0;
    for (std::size_t sum = 1; sum < completed_by.size(); ++sum) {
        const auto total = static_cast<std::int64_t>(sum) * unit;
        if (completed_by[sum] == unreached) continue;
        if (std::abs(total - target) < std::abs(best * unit - target)) {
            best = static_cast<std::int64_t>(sum);
        }
    }
    std::vector<std::int32_t> chosen;
    while (best > 0) {
        const std::int32_t value = completed_by[static_cast<std::size_t>(best)];
        chosen.push_back(value);
        best -= (values[static_cast<std::size_t>(value)] + unit - 1) / unit;
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
}

}  // namespace loratrain

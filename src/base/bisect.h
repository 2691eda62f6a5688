#pragma once

#include <cstdint>

namespace loratrain {

/// The largest of the numbers from `low`, for which `holds` is taken to be true, to below `high`
/// for which it is true; it must not become true again once it is false.
template <class Condition>
std::int64_t last_that_holds(std::int64_t low, std::int64_t high, const Condition& holds) {
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (holds(middle) ? low : high) = middle;
    }
    return low;
}

}  // namespace loratrain

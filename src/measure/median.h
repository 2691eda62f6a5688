#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace loratrain {

/// Of an even number of values the upper of the middle two. At least one.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace loratrain

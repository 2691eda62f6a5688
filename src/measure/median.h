#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace loratrain {

/// The median of at least one value; the upper of the middle two if their number is even.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace loratrain

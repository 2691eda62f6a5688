#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/dynamic_map.h"
#include "reference/adamw.h"

namespace loratrain::reference {

/// Numbers as codes of blocks stand for them: the nearest of the map by comparing with all, times
/// the block's largest magnitude in fp32.
inline void through_codes(const DynamicMap& map, std::vector<double>& values) {
    for (std::size_t first = 0; first < values.size(); first += dynamic_block) {
        const std::size_t end = std::min(values.size(), first + dynamic_block);
        double largest = 0.0;
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
        for (std::size_t i = first; i < end && largest > 0.0; ++i) {
            const double x = values[i] / largest;
            float nearest = map[0];
            for (const float number : map) {
                if (std::fabs(number - x) < std::fabs(nearest - x)) nearest = number;
            }
            values[i] = nearest * largest;
        }
    }
}

/// AdamW8bit in fp64: AdamW, whose moments then go through codes.
inline void adamw_8bit(const AdamW& op, const std::vector<double>& gradients, double grad_sumsq,
                       AdamWState& state) {
    adamw(op, gradients, grad_sumsq, state);
    through_codes(signed_dynamic_map(), state.first_moments);
    through_codes(unsigned_dynamic_map(), state.second_moments);
}

}  // namespace loratrain::reference

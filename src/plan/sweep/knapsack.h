#pragma once

#include <cstdint>
#include <vector>

namespace loratrain {

/// Of each item so many that the value is highest and both sums of weights stay within 1.
struct Knapsack {
    struct Item {
        double value = 0.0;
        double first = 0.0;   ///< weight, >= 0
        double second = 0.0;  ///< weight, >= 0
        std::int32_t count = 0;
    };
    std::vector<Item> items;
};

struct KnapsackSolution {
    std::vector<std::int32_t> counts;  ///< per item; empty = nothing above the cutoff
    double value = 0.0;
};

/// Branch and bound, items by falling value per weight, bounded by the relaxation under the sum of
/// both constraints. Only solutions of more than `cutoff`; the best of at most `nodes` nodes, exact
/// where these suffice.
KnapsackSolution solve_knapsack(const Knapsack& problem, double cutoff, std::int64_t nodes);

}  // namespace loratrain

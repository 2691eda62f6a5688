#pragma once

#include "plan/cost/costs.h"

namespace loratrain {

/// Seconds in which ranks sum so many gradients over replicas: each sends its own to the ranks that
/// add them up, and receives the sums.
inline double exchange_seconds(const CostModel& costs, double parameters) {
    constexpr double ways = 2.0;
    return ways * (costs.message_fixed + costs.message_per_byte * sizeof(float) * parameters);
}

}  // namespace loratrain

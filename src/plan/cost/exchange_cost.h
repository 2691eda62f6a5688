#pragma once

#include "plan/costs.h"

namespace loratrain {

/// Seconds in which ranks sum so many gradients over replicas: each sends its own to the ranks that
/// add them up, and receives the sums.
inline double exchange_seconds(const LinkCost& link, double parameters) {
    constexpr double ways = 2.0;
    return ways * (link.fixed + link.per_byte * sizeof(float) * parameters);
}
/// As if all were on one host: what plans are made with, which do not depend on hosts.
inline double exchange_seconds(const CostModel& costs, double parameters) {
    return exchange_seconds(costs.link(true), parameters);
}

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/deployments/search_deployments.h"

namespace loratrain {

/// Improves a deployment by local search.

/// Seconds of a round with `replicas[i]` replicas of option i.
using RoundSeconds = std::function<double(const std::vector<std::int32_t>& replicas)>;

/// Improves a deployment by local search. `start`: the replicas of each option; they use
/// `task.ranks` ranks and hold the last bucket. A step removes one or two replicas and gives their
/// ranks to replicas of one of the options `used`. It takes the exchange with the fewest `seconds`,
/// as long as that gains. Only the exchanges with the lowest bounds (least_round_seconds) are
/// tried, so the work is bounded. Returns the replicas after each step, the fastest last; empty if
/// no exchange gains.
std::vector<std::vector<std::int32_t>> exchange_replicas(const DeploymentTask& task,
                                                         const std::vector<std::size_t>& used,
                                                         std::vector<std::int32_t> start,
                                                         const RoundSeconds& seconds);

}  // namespace loratrain

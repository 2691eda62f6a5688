#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/deployments/search_deployments.h"

namespace loratrain {

/// Seconds of a round with so many replicas of each option.
using RoundSeconds = std::function<double(const std::vector<std::int32_t>& replicas)>;

/// Descends from `start`, replicas of each option that make up `task.ranks` and hold the last
/// bucket: takes one or two replicas away and gives their ranks to replicas of one of the options
/// `used`, in each step by the exchange with the fewest `seconds`, as long as that gains. Of a
/// step's exchanges those with the lowest bounds (least_round_seconds) are looked at, so the work
/// is bounded. Returns what each step came to, the fastest last; empty where no exchange gains.
std::vector<std::vector<std::int32_t>> exchange_replicas(const DeploymentTask& task,
                                                         const std::vector<std::size_t>& used,
                                                         std::vector<std::int32_t> start,
                                                         const RoundSeconds& seconds);

}  // namespace loratrain

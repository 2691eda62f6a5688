#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// Trials of each class on each replica by the MILP of assign_trials.h; none where it finds nothing
/// below the cutoff, in seconds of its own objective, or there is no solver.
std::optional<std::vector<std::vector<std::int32_t>>> milp_assignment(
    const SweepReplica& replica, const SweepRules& rules, std::span<const std::int32_t> counts,
    std::int32_t replicas, double cutoff, std::int64_t nodes);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/sweep/sweep_replica.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

using ClassCounts = std::vector<std::int32_t>;

/// A replica of 1 to `most_stages` stages with 1 to `most_classes` classes of trials, by falling
/// steps; in half of the cases with little room.
SweepReplica random_replica(std::uint64_t seed, int most_stages, int most_classes);

/// 1 to `most` trials over the classes, at least one of the first.
ClassCounts random_counts(std::uint64_t seed, const SweepReplica& replica, int most);

/// Calls `use` with every choice of 0 to counts[c] of each class.
void for_each_choice(const ClassCounts& counts, const std::function<void(const ClassCounts&)>& use);

ClassCounts difference(const ClassCounts& all, const ClassCounts& taken);

}  // namespace loratrain::plan_test

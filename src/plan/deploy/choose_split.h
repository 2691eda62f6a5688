#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Share of time that another split has to save to replace the usual one.
inline constexpr double split_gain = 0.05;

/// The layers of every stage. They are split by `usual` costs (partition_layers.h) and, if `loads`
/// has parts per adapter, shared by neighbours (share_layers.h). Another split is taken only if by
/// `measured` costs its slowest stage takes over 5% less time. Smaller differences are noise of the
/// measurement, and runs should get the same layout.
std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const AdapterLoads& loads, Recompute recompute);

}  // namespace loratrain

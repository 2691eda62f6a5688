#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Share by which a split has to be faster to be taken instead of the usual one.
inline constexpr double split_gain = 0.05;

/// The layers of every stage as `usual` costs would split them (partition_layers.h) and, with parts
/// of `loads` per adapter, share them (share_layers.h), unless by the measured ones the slowest
/// stage of another split takes over 5% less time: what differs by less is noise of the
/// measurement, and runs are to be laid out alike.
std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const AdapterLoads& loads, Recompute recompute);

}  // namespace loratrain

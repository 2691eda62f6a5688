#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Share by which a split has to be faster to be taken instead of the usual one.
inline constexpr double split_gain = 0.05;

/// The layers of every stage (partition_layers.h) as `usual` costs would split them, unless by the
/// measured ones the slowest stage of another split takes over 5% less time: what differs by less
/// is noise of the measurement, and runs are to be laid out alike.
std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const MicrobatchLoad& load, Recompute recompute);

}  // namespace loratrain

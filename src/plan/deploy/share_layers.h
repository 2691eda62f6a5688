#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Share of time that the slowest stage has to save for layers to be shared.
inline constexpr double sharing_gain = 0.02;

/// Evens out stages of whole layers: two neighbouring stages share the layer between them. One of
/// them computes it for the adapters below a number, the other for the remaining adapters. The
/// slowest stage takes the least time of a microbatch of `loads`, with its parts per adapter. Rows
/// of a microbatch are in the order of adapters, so each stage computes one range. Base weights are
/// frozen, so a second copy needs no synchronisation; the factors of an adapter stay on one rank.
///
/// `whole`: the stages with whole layers (partition_layers.h), returned unchanged if sharing gains
/// less than sharing_gain. Every stage keeps a layer that it does not share.
std::vector<StagePlan> share_layers(const std::vector<StagePlan>& whole, const CostModel& costs,
                                    const AdapterLoads& loads, Recompute recompute);

}  // namespace loratrain

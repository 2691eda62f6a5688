#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Share by which the slowest stage has to be faster for layers to be shared.
inline constexpr double sharing_gain = 0.02;

/// Levels what whole layers leave uneven: neighbouring stages share the layer between them, the
/// adapters below a number on one of the two and the others on the other, so that the slowest
/// stage takes the least time of a microbatch of `loads`, with its parts per adapter. Base weights
/// are frozen, so a second copy of them needs no synchronisation, and an adapter's factors stay on
/// one rank. Rows of a microbatch are in the order of adapters: each stage computes one range.
///
/// `whole` are the stages with whole layers (partition_layers.h). They come back as they are unless
/// sharing gains as much as sharing_gain. Every stage keeps a layer that it does not share.
std::vector<StagePlan> share_layers(const std::vector<StagePlan>& whole, const CostModel& costs,
                                    const AdapterLoads& loads, Recompute recompute);

}  // namespace loratrain

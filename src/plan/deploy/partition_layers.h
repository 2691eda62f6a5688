#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Cuts the layers into `stages` contiguous ranges (1 <= stages <= layers, at least one layer each,
/// stage i on rank i) with the smallest possible largest time: forward and backward seconds of a
/// microbatch of `load`, the head's included. Among those the most even one, surplus layers on the
/// earlier stages.
std::vector<StagePlan> partition_layers(std::int32_t layers, std::int32_t stages,
                                        const CostModel& costs, const MicrobatchLoad& load,
                                        Recompute recompute = Recompute::none);

}  // namespace loratrain

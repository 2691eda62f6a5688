#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Cuts the layers into `stages` contiguous ranges such that the slowest stage is as fast as
/// possible: 1 <= stages <= layers, at least one layer each, stage i on rank i. The time of a stage
/// is forward and backward of a microbatch of `load`, in seconds, including the head. Among equally
/// fast cuts the most even one is taken, with surplus layers on the earlier stages.
std::vector<StagePlan> partition_layers(std::int32_t layers, std::int32_t stages,
                                        const CostModel& costs, const MicrobatchLoad& load,
                                        Recompute recompute = Recompute::none);

}  // namespace loratrain

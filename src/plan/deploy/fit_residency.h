#pragma once

#include <cstdint>
#include <optional>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// Tokens of a microbatch, in whole 1024s, whose forward takes as long as the transfers of a stage
/// of `layers` layers of which `resident` stay; 0 where none streams. Backward takes longer.
std::int64_t tokens_that_hide(const CostModel& costs, std::int32_t layers, std::int32_t resident);

/// The most layers that can stay on every rank, with the replica's microbatches and recomputation;
/// none where they do not fit with no layer resident.
std::optional<std::int32_t> most_resident_layers(const Job& job, const ReplicaView& view);

}  // namespace loratrain

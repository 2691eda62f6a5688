#pragma once

#include <cstdint>
#include <vector>

#include "plan/replica_view.h"

namespace loratrain {

/// The plan's stages of whole layers, changed to fit into memory with these microbatches and this
/// recomputation. A rank that needs more than plan.bytes_per_rank gives layers to other stages: no
/// more layers than necessary, to the stages that have been given fewest. Empty if no split over as
/// many stages fits.
std::vector<StagePlan> fit_layers(const Job& job, const ReplicaView& view, std::int64_t tokens,
                                  Recompute recompute);

}  // namespace loratrain

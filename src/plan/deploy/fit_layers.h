#pragma once

#include <cstdint>
#include <vector>

#include "plan/replica_view.h"

namespace loratrain {

/// The plan's stages, of whole layers, with layers moved to other stages where a rank needs more
/// than plan.bytes_per_rank with these microbatches and this recomputation: no more of them than
/// need be, to those that have been given fewest. Empty where no split over as many stages fits.
std::vector<StagePlan> fit_layers(const Job& job, const ReplicaView& view, std::int64_t tokens,
                                  Recompute recompute);

}  // namespace loratrain

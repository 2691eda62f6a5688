#pragma once

#include <cstdint>

#include "config/job.h"
#include "plan/replica_view.h"

namespace loratrain {

/// ReplicaPlan::texts_at_once of a replica whose layers and microbatches are chosen. Adapters with
/// rewards write up to 256 texts at a time, since a larger batch reads the weights less often: as
/// many as fit in memory that nothing else takes, and in 1/8 of each rank's. Where adapters of the
/// job wait for memory, or no adapter has rewards, it is few_texts.
std::int64_t texts_at_once(const Job& job, const ReplicaView& view);

}  // namespace loratrain

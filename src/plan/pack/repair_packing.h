#pragma once

#include <span>
#include <vector>

#include "plan/pack/pack_block.h"

namespace loratrain {

/// Undoes merges across rounds until check_packing has nothing to say about the order of steps:
/// first the microbatches that mix rounds and hold an adapter out of order are split into one per
/// round, then all that mix rounds; the result is sorted by round. Contents other than the order
/// are not changed: a missing or doubled sample stays one.
std::vector<Microbatch> repair_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::vector<Microbatch> microbatches);

}  // namespace loratrain

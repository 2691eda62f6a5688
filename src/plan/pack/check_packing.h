#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// What is wrong with the packing of a block, in words; empty = nothing. Shares no code with the
/// packing. Checks: every sample of the rounds exactly once and no other, under its adapter and
/// step, with at least its tokens; groups of samples in one microbatch each; no microbatch empty or
/// above `capacity` tokens; one segment per adapter, none empty, samples in batch order; every
/// segment of (a, j) in an earlier microbatch than all of (a, j + 1).
std::vector<std::string> check_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::span<const Microbatch> microbatches);

/// Undoes merges across rounds until check_packing has nothing to say about the order of steps:
/// first the microbatches that mix rounds and hold an adapter out of order are split into one per
/// round, then all that mix rounds; the result is sorted by round. Contents other than the order
/// are not changed: a missing or doubled sample stays one.
std::vector<Microbatch> repair_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::vector<Microbatch> microbatches);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// Checks the packing of a block and returns what is wrong (empty = nothing). It shares no code
/// with the packing:
/// - every sample of the rounds is there exactly once, under its adapter and step,
///   with at least its tokens;
///   no other sample is there;
/// - each group of samples is in one microbatch;
/// - no microbatch is empty or above `capacity` tokens;
/// - a microbatch has at most one segment per adapter, none empty, samples in batch order;
/// - every segment of (a, j) is in an earlier microbatch than all of (a, j + 1).
std::vector<std::string> check_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::span<const Microbatch> microbatches);

/// Splits microbatches by round until the order of steps is right for check_packing(): first those
/// that mix rounds and hold an adapter out of order, then all that mix rounds. Sorts the result by
/// round. A missing or doubled sample stays missing or doubled.
std::vector<Microbatch> repair_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::vector<Microbatch> microbatches);

}  // namespace loratrain

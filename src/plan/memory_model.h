#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace loratrain {

/// Sizes of what a stage allocates; the model layer allocates with these same functions, so the
/// prediction is the allocation. All sizes in bytes unless they say columns; `e` below = bytes of
/// the compute type (4 on the CPU, 2 on CUDA).

/// Rounds up to the alignment of every buffer (64 bytes).
std::uint64_t aligned(std::uint64_t bytes);

/// One decoder layer's activations kept for backward, per slot (design decision 5):
/// x[T,H] q[T,QD] k,v[T,GD] o[T,QD] lse[T,Q](fp32) x2[T,H] gate,up[T,F] S[T,saved]x7, and with
/// qk_norm the un-normalised q and k as well.
std::uint64_t layer_activation_bytes(const Plan& plan);

/// Whole slot of a stage: layers, the stage's output [T,H] with its message tail, on the last stage
/// the head's input.
std::uint64_t slot_bytes(const Plan& plan, const StagePlan& stage);

/// Slots a stage needs: max_in_flight - stage index, at least 1.
std::int32_t slot_count(const Plan& plan, std::size_t stage_index);

/// Doubles in a message tail: for every adapter a sum of squares and a loss sum.
std::uint64_t message_tail_bytes(const Plan& plan);

MemoryPlan stage_memory(const Job& job, const Plan& plan, std::size_t stage_index);

}  // namespace loratrain

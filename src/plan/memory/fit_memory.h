#pragma once

#include <cstdint>

#include "plan/memory/memory_model.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Finds the sizes of microbatches that fit into memory.

/// Sizes of microbatches that the planner chooses are multiples of this number, the rows of a
/// GEMM's tiles.
inline constexpr std::int64_t token_granule = 128;

/// Whether the job allows this choice of recomputation: it names the choice, or says auto.
bool may_use(const Job& job, Recompute recompute);

/// Whether every rank of the plan stays within plan.bytes_per_rank with `tokens` and `recompute` in
/// place of the plan's own. Always true if plan.bytes_per_rank is 0.
bool fits_memory(const Job& job, const ReplicaView& view, std::int64_t tokens, Recompute recompute);

/// The largest microbatch_tokens from `least` to most_fitting_tokens with which fits_memory()
/// holds; 0 if `least` does not fit. Found by bisection, stage by stage, since memory grows with
/// the tokens.
std::int64_t largest_fitting_tokens(const Job& job, const ReplicaView& view, Recompute recompute,
                                    std::int64_t least);

/// largest_fitting_tokens() without and with recomputation; both 0 if plan.bytes_per_rank is 0.
FittingTokens fitting_tokens(const Job& job, const ReplicaView& view, std::int64_t least);

/// Size of the microbatches, and whether layers are recomputed: the job's values, or where a value
/// is auto
/// - recompute: none, unless memory then leaves less than 1/8 of `usual` tokens, otherwise layer.
///   At about 1/8, small matrix products cost as much as recomputation does, 2/5 of a step;
/// - tokens: `usual`, or if that does not fit, the largest number that does. Always at least
///   `longest`, the tokens of the longest sample. Whole multiples of 128, so that slightly
///   different free memory seldom changes results.
///
/// If nothing fits, the smallest choice that the job allows is returned; fits_memory() then returns
/// false. `view` has everything else that memory depends on. `fitting`: fitting_tokens() with
/// `least` = `longest`.
struct MicrobatchChoice {
    std::int64_t tokens = 0;
    Recompute recompute = Recompute::none;
};
MicrobatchChoice choose_microbatch(const Job& job, const ReplicaView& view,
                                   const FittingTokens& fitting, std::int64_t usual,
                                   std::int64_t longest);

}  // namespace loratrain

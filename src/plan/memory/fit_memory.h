#pragma once

#include <cstdint>

#include "plan/memory/memory_model.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Sizes of microbatches that are chosen are multiples of it: rows of a GEMM's tiles.
inline constexpr std::int64_t token_granule = 128;

/// Whether the job leaves this choice: it says so, or auto.
bool may_use(const Job& job, Recompute recompute);

/// Whether every rank of the plan stays within plan.bytes_per_rank (always, when that is 0) with
/// these microbatches and this recomputation in place of the plan's own.
bool fits_memory(const Job& job, const ReplicaView& view, std::int64_t tokens, Recompute recompute);

/// The largest microbatch_tokens from `least` to most_fitting_tokens that fits_memory, by bisection
/// (memory grows with the tokens); 0 when `least` does not fit.
std::int64_t largest_fitting_tokens(const Job& job, const ReplicaView& view, Recompute recompute,
                                    std::int64_t least);

/// The largest without and with recomputation; none of both where plan.bytes_per_rank is 0.
FittingTokens fitting_tokens(const Job& job, const ReplicaView& view, std::int64_t least);

/// Size of the microbatches and whether to recompute: what the job says, and where that is auto
/// - recompute: none, unless memory then leaves less than 1/8 of `usual` tokens (about where small
///   matrix products cost what recomputation does, 2/5 of a step), layer otherwise;
/// - tokens: `usual`, or when that does not fit what does, in whole 128s so that a little more or
///   less free memory seldom changes results; at least `longest`, the tokens of the longest sample.
/// Where nothing fits, the smallest choice that the job leaves; fits_memory then says so.
/// `view` has everything else that memory depends on; `fitting`: fitting_tokens of `longest`.
struct MicrobatchChoice {
    std::int64_t tokens = 0;
    Recompute recompute = Recompute::none;
};
MicrobatchChoice choose_microbatch(const Job& job, const ReplicaView& view,
                                   const FittingTokens& fitting, std::int64_t usual,
                                   std::int64_t longest);

}  // namespace loratrain

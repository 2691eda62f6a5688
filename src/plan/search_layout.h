#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace loratrain {

/// A size of microbatches between half and five quarters of plan.microbatch_tokens with which the
/// first rounds of the job take the least simulated time. Smaller ones fill and empty a pipeline
/// faster and level its stages better, larger ones have less overhead; plan.microbatch_tokens
/// itself unless another size gains at least 2%, where the plan has one stage, or where a round
/// fits into one microbatch. Sizes hold the job's longest sample (`longest`), stay
/// within memory and, on CUDA, above 2048 tokens, below which products run slower than the model
/// says. Packs greedily and plays with plan.costs. `plan` is complete but for its memory.
std::int64_t search_microbatch_tokens(const Job& job, const Plan& plan,
                                      std::span<const DatasetInfo> datasets, std::int64_t longest);

}  // namespace loratrain

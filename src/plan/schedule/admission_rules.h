#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Decides which adapters train at the same time.

/// An adapter's progress, as admission sees it.
struct AdapterClaim {
    bool unfinished = true;       ///< it has optimizer steps left and was not ended
    bool begun = false;           ///< it has taken an optimizer step
    std::int32_t steps_left = 0;  ///< of a trial; 0 for other adapters
    int speculation = 0;          ///< place among trials that train without a decision; else 0
};

/// The unfinished adapters in the order in which they get to train (mLoRA section 3, task
/// scheduler):
/// 1. adapters that train on speculation come after all others, in their own order;
/// 2. higher priority first, so that it preempts;
/// 3. adapters that have begun first, so that equal priority waits;
/// 4. trials with most steps left first, since a sweep's makespan depends on its longest trials;
/// 5. lower AdapterId first.
std::vector<AdapterId> admission_order(const Job& job, std::span<const AdapterClaim> claims);

/// Tokens whose rows take as long as the fixed costs of one microbatch per stage. So many tokens
/// train beside others at little cost.
double tokens_of_fixed_costs(const Plan& plan);

/// Bytes for resident adapters on a rank: what everything else leaves of plan.bytes_per_rank.
std::uint64_t adapter_room(const Plan& plan, std::int32_t rank);

/// True if all of `adapters` fit into adapter_room() of every rank at once, or plan.bytes_per_rank
/// is 0.
bool fit_together(const Job& job, const Plan& plan, std::span<const AdapterId> adapters);

/// The adapters that train now: in admission_order() until most_admitted is reached or the next one
/// does not fit into adapter_room() of every rank. No adapter is passed by: otherwise small
/// adapters could keep a large one waiting for ever. At least one is admitted (make_plan and
/// extend_plan refuse an adapter that does not fit alone); none if all are finished. Memory is not
/// checked if plan.bytes_per_rank is 0. `claims`: per AdapterId. Depends on the arguments only, so
/// that it is the same at every restart.
std::vector<AdapterId> admit(const Job& job, const Plan& plan,
                             std::span<const AdapterClaim> claims);

}  // namespace loratrain

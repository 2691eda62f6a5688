#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// What admission asks of an adapter's progress.
struct AdapterClaim {
    bool unfinished = true;       ///< it has optimizer steps left and was not ended
    bool begun = false;           ///< it has taken an optimizer step
    std::int32_t steps_left = 0;  ///< of a trial; 0 of others, which go by their order alone
    int speculation = 0;  ///< of trials without a decision, its place in their order; else 0
};

/// The unfinished adapters in the order in which they get to train: those that do so on speculation
/// after all others, in their own order; higher priority first; among
/// equals those that have begun, then those with most steps left (a sweep's makespan hangs on its
/// longest trials), then first come (lower AdapterId) first. So a higher priority
/// preempts, an equal one waits (mLoRA section 3, task scheduler).
std::vector<AdapterId> admission_order(const Job& job, std::span<const AdapterClaim> claims);

/// Tokens of a round whose rows take no longer than its microbatches, one for each stage, take
/// without any: so much is trained beside others at little cost.
double tokens_of_fixed_costs(const Plan& plan);

/// Bytes of a rank that resident adapters may take together: what everything else leaves of
/// plan.bytes_per_rank.
std::uint64_t adapter_room(const Plan& plan, std::int32_t rank);

/// Whether all of them can be resident at once: within adapter_room of every rank. Memory is not
/// checked where plan.bytes_per_rank is 0.
bool fit_together(const Job& job, const Plan& plan, std::span<const AdapterId> adapters);

/// Who trains now: adapters in admission_order until most_admitted is reached or the next one does
/// not fit into adapter_room of every rank beside those before it. Nobody is passed by: a smaller
/// adapter further behind would otherwise keep a larger one waiting for ever. At least the first
/// one is admitted (make_plan and extend_plan refuse an adapter that does not fit alone); empty
/// when all are finished. `claims`: per AdapterId of `job`. Memory is not checked where
/// plan.bytes_per_rank is 0. Depends on nothing else, so it is the same at every restart.
std::vector<AdapterId> admit(const Job& job, const Plan& plan,
                             std::span<const AdapterClaim> claims);

}  // namespace loratrain

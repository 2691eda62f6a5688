#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Where the training stands: optimizer steps already scheduled per adapter; `stopped` adapters
/// (failed or finished early) are not scheduled any more.
struct Progress {
    std::int32_t round = 0;
    std::vector<std::int32_t> steps;  ///< per AdapterId
    std::vector<bool> stopped;        ///< per AdapterId
};

/// The next `rounds` rounds (fewer when all adapters finish earlier; an empty window when nothing
/// is left). Pure and deterministic; the packing of a round depends on the plan, the seeds and the
/// adapters' steps alone, not on where the window starts. Checked (check_window) before return.
///
/// Packing: first-fit of a group's samples of one round into microbatches of microbatch_tokens, in
/// global-batch order; with fewer groups than stages a batch is cut into at least
/// min(samples, stages) microbatches of about equal tokens. Sequence: round by round, groups in
/// cyclic order, so that a batch and the next one of the same adapter are far apart.
/// Actions: 1F1B with other adapters filling the bubbles (LoRAPP, mLoRA section 3): first stage
/// prefers a forward, the other stages a backward; forwards and backwards are both in microbatch
/// order at every stage; at most max_in_flight in flight.
Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds);

/// Forward-only window over the eval samples of the given adapters (those whose dataset has any).
Window plan_eval_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        const std::vector<AdapterId>& adapters);

/// Samples of global batch (adapter, step): epoch order from the adapter's seed (shuffled when the
/// dataset says so), batches do not cross epochs, the last of an epoch may be smaller (as HF).
std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                        std::int32_t step);

}  // namespace loratrain

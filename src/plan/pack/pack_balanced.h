#pragma once

#include <cstdint>
#include <string>

#include "plan/pack/pack_variants.h"

namespace loratrain {

/// The packing of policy `balanced`.

/// The chosen packing and its predicted time.
struct BalancedPacking {
    Bins bins;
    PackVariant variant;
    PipelineTime time;  ///< of the bins done `repeats` times
    int repeats = 1;
};

/// Policy `balanced`: the packing of least simulated time among the variants of pack_variants.h;
/// within 0.3% of it, the one with the fewest microbatches.
/// - Variants: from one group of adapters to one per adapter (at most twice the stages, or 8); for
///   each number of groups filled, evened and streamed microbatches of several targets.
/// - Search: a rough comparison over the block's first rounds (of large rounds the first samples of
///   every batch), then the best few over the whole block, then targets around the best.
/// - Blocks follow each other without draining the pipeline, so a short block is simulated several
///   times in a row.
/// - Filling by MILP (packing `milp`, with a solver) is tried if greedy filling is near the best.
BalancedPacking pack_balanced_block(const PackRules& rules, const BlockItems& block);

struct ImprovedPacking {
    Bins bins;
    std::int64_t nanoseconds = 0;  ///< steady_time()
};

/// Simulated nanoseconds (pipeline_time.h) of a block in a row of equal blocks: half of what the
/// second and the third add to the first.
std::int64_t steady_time(const PackRules& rules, const BlockItems& block, const Bins& bins);

/// Improves a packing by simulated annealing (Kirkpatrick et al. 1983) on steady_time(). Changes: a
/// group of samples moves to a microbatch nearby, alone or in exchange for another group; a
/// microbatch moves in the order; a microbatch is cut in two. Tries rules.changes_per_item changes
/// per item, fewer in large blocks; each simulates the whole block. The result depends on the
/// arguments only, keeps to capacity and to the order of an adapter's batches
/// (pack_microbatches.h), and takes no longer than `bins`.
ImprovedPacking improve_packing(const PackRules& rules, const BlockItems& block, Bins bins);

}  // namespace loratrain

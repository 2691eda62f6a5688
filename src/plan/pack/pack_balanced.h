#pragma once

#include <cstdint>
#include <string>

#include "plan/pack/pack_variants.h"

namespace loratrain {

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

}  // namespace loratrain

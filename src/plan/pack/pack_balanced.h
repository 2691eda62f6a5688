#pragma once

#include <cstdint>
#include <string>

#include "plan/pack/pack_variants.h"

namespace loratrain {

/// What was chosen and how it compares, for reports.
struct BalancedPacking {
    Bins bins;
    PackVariant variant;
    PipelineTime time;  ///< of the bins done `repeats` times
    int repeats = 1;
};

/// The packing of least simulated time (fewest microbatches within 0.3% of it) among variants:
/// numbers of groups from one to one for each adapter (at most twice the stages, or 8), and per
/// number of groups filled microbatches, evened ones and streams of several targets. Rough
/// comparison over the block's first rounds (of large rounds the first samples of every batch), the
/// best few over the whole block, then targets around the best. Simulated times are those of the
/// block done several times in a row where it is short, since blocks follow each other without
/// draining the pipeline. Filling by MILP (packing `milp`, with a solver) is tried where greedy
/// filling came near the best.
BalancedPacking pack_balanced_block(const PackRules& rules, const BlockItems& block);

}  // namespace loratrain

#pragma once

#include <cstdint>

#include "plan/pack/block_items.h"

namespace loratrain {

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

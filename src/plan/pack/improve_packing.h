#pragma once

#include <cstdint>

#include "plan/pack/block_items.h"

namespace loratrain {

struct ImprovedPacking {
    Bins bins;
    std::int64_t nanoseconds = 0;  ///< as steady_time()
};

/// Simulated nanoseconds (pipeline_time.h) of a block that follows and is followed by itself: what
/// the second and the third add to the first, halved.
std::int64_t steady_time(const PackRules& rules, const BlockItems& block, const Bins& bins);

/// A packing made better by small changes: a sample group goes to a microbatch nearby, alone or in
/// exchange for another, a microbatch moves in the order or is cut in two. Simulated annealing
/// (Kirkpatrick et al. 1983) on steady_time(), which a change may make a little longer at first;
/// rules.changes_per_item changes are tried for each item, fewer in large blocks, each of which is
/// simulated whole. What comes out depends on the arguments alone, keeps to capacity and to the
/// order of an adapter's batches (pack_microbatches.h), and takes no longer than `bins`.
ImprovedPacking improve_packing(const PackRules& rules, const BlockItems& block, Bins bins);

}  // namespace loratrain

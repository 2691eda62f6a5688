#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/pack/block_items.h"

namespace loratrain {

/// What no packing of a block can have less of.
struct BlockBound {
    std::int64_t bins = 0;     ///< microbatches
    double nanoseconds = 0.0;  ///< per block, where blocks like it follow each other for ever
};

/// Let a microbatch of tokens n, squares q and targets g take F(s) + v(s) . (n, q, g) on stage s,
/// forward and backward together (cost_model.h; stages that compute every adapter in all layers).
/// Over a block the second part sums to V(s) = v(s) . (all tokens, squares, targets), however the
/// samples are packed, and the first to F(s) for every microbatch, of which there are at least
/// B = least_bins(lengths, capacity) (pack_batch.h: L2 of Martello and Toth, and the sum of
/// lengths). A stage does one thing at a time, so K blocks take at least K (V(s) + B F(s)) on each
/// stage s; per block, as K grows and filling and draining count for nothing, at least
///   max over s of V(s) + B F(s).
/// Dependences between steps and between stages are left out, and so is what hosts take: what is
/// possible may be far above it where few adapters have small batches.
inline BlockBound block_bound(const PackRules& rules, const BlockItems& block) {
    std::vector<std::int64_t> lengths;
    AdapterLoads all;
    for (std::size_t i = 0; i < block.items.size(); ++i) {
        const BlockItem& item = block.items[i];
        lengths.push_back(item.tokens);
        all.add(block.batch_of(static_cast<std::int32_t>(i)).adapter,
                {item.tokens, item.squares, item.targets});
    }
    BlockBound bound;
    bound.bins = least_bins(lengths, block.capacity);
    CostModel costs = rules.costs;
    costs.host = {};
    for (const StagePlan& stage : rules.stages) {
        const double fixed = stage_seconds(costs, stage, AdapterLoads(), rules.recompute);
        const double once = stage_seconds(costs, stage, all, rules.recompute);
        const double seconds = once + fixed * static_cast<double>(bound.bins - 1);
        bound.nanoseconds = std::max(bound.nanoseconds, 1e9 * seconds);
    }
    return bound;
}

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack/pack_batch.h"
#include "plan/pack/pack_microbatches.h"
#include "plan/timing/pipeline_time.h"

namespace loratrain {

/// A packing block as flat lists, for the packing algorithms.

/// An item is what packing moves: a group of samples (AdapterPlan::group_samples).
struct BlockItem {
    std::int32_t batch = 0;    ///< index into BlockItems::batches
    std::int32_t place = 0;    ///< its first sample in the batch
    std::int32_t samples = 1;  ///< neighbours in the batch
    std::int64_t tokens = 0;
    double squares = 0.0;  ///< sum of its samples' AttentionSpan::squares()
    std::int64_t targets = 0;
    std::int64_t cost = 0;  ///< forward and backward on all stages, nanoseconds
};

struct BlockBatch {
    AdapterId adapter{};
    std::int32_t round = 0;
    std::int32_t previous = -1;  ///< the adapter's batch before this one; -1 = none
    std::int32_t first_item = 0;
    std::int32_t item_count = 0;
};

/// A packing block in flat form, as the packing algorithms use it.
struct BlockItems {
    std::vector<BlockBatch> batches;  ///< round by round, in the round's order
    std::vector<BlockItem> items;     ///< batch by batch
    std::int32_t rounds = 0;
    std::int64_t capacity = 0;
    std::int64_t cost = 0;    ///< sum
    std::int64_t tokens = 0;  ///< sum

    const BlockItem& item(std::int32_t i) const { return items[static_cast<std::size_t>(i)]; }
    const BlockBatch& batch(std::int32_t b) const { return batches[static_cast<std::size_t>(b)]; }
    const BlockBatch& batch_of(std::int32_t i) const { return batch(item(i).batch); }
};

BlockItems block_items(const PackRules& rules, std::span<const Round> rounds);

/// The pipeline's load if the bins (of items, in training order) are computed `repeats` times in a
/// row. Repetition shows the steady state of a long run in a short block.
PipelineLoad pipeline_load(const PackRules& rules, const BlockItems& block, const Bins& bins,
                           int repeats = 1);

/// The same in two steps: the times of bins that are computed once, and the load of these `repeats`
/// times in a row.
PipelineLoad times_of(const PackRules& rules, const BlockItems& block, const Bins& bins);
PipelineLoad repeated(PipelineLoad times, const BlockItems& block, const Bins& bins, int repeats);

/// The load of bins computed once, of which the first `from` and the last `alike` are as in
/// `before`.
PipelineLoad changed_load(const PackRules& rules, const BlockItems& block, const Bins& bins,
                          const PipelineLoad& before, std::size_t from, std::size_t alike);

/// The bins as microbatches.
std::vector<Microbatch> to_microbatches(std::span<const Round> rounds, const BlockItems& block,
                                        const Bins& bins);

}  // namespace loratrain

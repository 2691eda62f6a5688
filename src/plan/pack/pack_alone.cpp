#include "plan/pack/pack_variants.h"

#include <algorithm>
#include <numeric>

namespace loratrain {

namespace {

/// First-fit in order.
void add_first_fit(const BlockItems& block, const BlockBatch& batch, Bins& bins) {
    const std::size_t first = bins.size();
    std::vector<std::int64_t> room;
    for (std::int32_t item = batch.first_item; item < batch.first_item + batch.item_count; ++item) {
        const std::int64_t tokens = block.item(item).tokens;
        const auto found = std::find_if(room.begin(), room.end(),
                                        [&](std::int64_t left) { return left >= tokens; });
        const auto at = first + static_cast<std::size_t>(found - room.begin());
        if (found == room.end()) {
            room.push_back(block.capacity);
            bins.emplace_back();
        }
        room[at - first] -= tokens;
        bins[at].push_back(item);
    }
}

bool cuts_fit(const BlockItems& block, const BlockBatch& batch, std::int32_t samples) {
    std::int64_t tokens = 0;
    for (std::int32_t i = 0; i < batch.item_count; ++i) {
        if (i % samples == 0) tokens = 0;
        tokens += block.item(batch.first_item + i).tokens;
        if (tokens > block.capacity) return false;
    }
    return true;
}

/// Microbatches of equally many consecutive samples, at least min(samples, at_least) of them.
void add_cuts(const BlockItems& block, const BlockBatch& batch, std::int32_t at_least, Bins& bins) {
    std::int32_t samples = std::max(1, batch.item_count / at_least);
    while (samples > 1 && !cuts_fit(block, batch, samples)) --samples;
    for (std::int32_t i = 0; i < batch.item_count; ++i) {
        if (i % samples == 0) bins.emplace_back();
        bins.back().push_back(batch.first_item + i);
    }
}

std::vector<std::int32_t> adapter_after_adapter(const BlockItems& block) {
    std::vector<std::int32_t> order(block.batches.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return block.batch(a).adapter < block.batch(b).adapter;
    });
    return order;
}

}  // namespace

Bins pack_sequential(const BlockItems& block) {
    Bins bins;
    for (const std::int32_t b : adapter_after_adapter(block)) {
        add_first_fit(block, block.batch(b), bins);
    }
    return bins;
}

Bins pack_one_f_one_b(const BlockItems& block, std::int32_t stages) {
    Bins bins;
    for (const std::int32_t b : adapter_after_adapter(block)) {
        add_cuts(block, block.batch(b), stages, bins);
    }
    return bins;
}

Bins pack_mlora(const BlockItems& block, std::int32_t stages) {
    std::vector<std::int32_t> adapters(static_cast<std::size_t>(block.rounds), 0);
    for (const BlockBatch& batch : block.batches) ++adapters[static_cast<std::size_t>(batch.round)];
    Bins bins;
    for (const BlockBatch& batch : block.batches) {
        const std::int32_t streams = adapters[static_cast<std::size_t>(batch.round)];
        if (streams >= stages) {
            add_first_fit(block, batch, bins);
        } else {
            const std::int32_t others = streams - 1;
            add_cuts(block, batch, others == 0 ? stages : (stages - 1 + others - 1) / others, bins);
        }
    }
    return bins;
}

}  // namespace loratrain

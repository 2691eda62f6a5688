#include "plan/pack/block_items.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr double nanoseconds_in_second = 1e9;

/// What every microbatch costs is left out.
CostModel variable_costs(CostModel costs) {
    for (CostLine* line : {&costs.layer_forward, &costs.layer_backward, &costs.head}) {
        line->fixed = 0.0;
    }
    costs.host = {};
    return costs;
}

/// Time that depends on the load, on all stages.
std::int64_t variable_cost(const PackRules& rules, const CostModel& variable,
                           const AdapterLoads& load) {
    double seconds = 0.0;
    for (const StagePlan& stage : rules.stages) {
        seconds += stage_seconds(variable, stage, load, rules.recompute);
    }
    return std::max<std::int64_t>(1, std::llround(seconds * nanoseconds_in_second));
}

/// The group that begins at `place`, without its batch and cost.
BlockItem group_item(const AttentionSpan& span, const PendingBatch& pending, std::int32_t place) {
    BlockItem item;
    item.place = place;
    item.samples = pending.group_samples;
    for (std::int32_t i = 0; i < item.samples; ++i) {
        const SampleRef& sample = pending.samples[static_cast<std::size_t>(place + i)];
        item.tokens += sample.tokens;
        item.squares += span.squares(sample.tokens);
        item.targets += sample.targets;
    }
    return item;
}

void add_batch(const PackRules& rules, const CostModel& variable, const PendingBatch& pending,
               BlockItems& block) {
    const auto number_of_batch = static_cast<std::int32_t>(block.batches.size()) - 1;
    const auto samples = static_cast<std::int32_t>(pending.samples.size());
    LORATRAIN_CHECK(samples % pending.group_samples == 0, samples, " samples in groups of ",
                    pending.group_samples);
    for (std::int32_t place = 0; place < samples; place += pending.group_samples) {
        BlockItem item = group_item(rules.span, pending, place);
        LORATRAIN_CHECK(item.tokens >= 1 && item.tokens <= rules.capacity, "a group of ",
                        item.tokens, " tokens, capacity ", rules.capacity);
        item.batch = number_of_batch;
        AdapterLoads load;
        load.add(pending.adapter, {item.tokens, item.squares, item.targets});
        item.cost = variable_cost(rules, variable, load);
        block.items.push_back(item);
        block.cost += item.cost;
        block.tokens += item.tokens;
    }
}

/// Per batch the bins that hold it: [first, last].
struct Extent {
    std::int32_t first = -1;
    std::int32_t last = -1;
};

std::vector<Extent> extents(const BlockItems& block, const Bins& bins) {
    std::vector<Extent> result(block.batches.size());
    for (std::size_t m = 0; m < bins.size(); ++m) {
        for (const std::int32_t item : bins[m]) {
            Extent& extent = result[static_cast<std::size_t>(block.item(item).batch)];
            if (extent.first < 0) extent.first = static_cast<std::int32_t>(m);
            extent.last = static_cast<std::int32_t>(m);
        }
    }
    return result;
}

/// Backwards before the forward of each bin; `again`: the block follows itself.
std::vector<std::int32_t> required_backwards(const BlockItems& block,
                                             const std::vector<Extent>& extent, std::size_t bins,
                                             bool again) {
    const auto count = static_cast<std::int32_t>(bins);
    std::vector<std::size_t> newest;  // by adapter
    for (std::size_t b = 0; b < block.batches.size() && again; ++b) {
        const std::size_t adapter = index(block.batches[b].adapter);
        if (extent[b].last < 0) continue;
        if (newest.size() <= adapter) newest.resize(adapter + 1);
        newest[adapter] = b;
    }
    std::vector<std::int32_t> required(bins, again ? -count : 0);
    for (std::size_t b = 0; b < block.batches.size(); ++b) {
        if (extent[b].first < 0) continue;
        const BlockBatch& batch = block.batches[b];
        std::int32_t& needed = required[static_cast<std::size_t>(extent[b].first)];
        if (batch.previous >= 0) {
            needed = std::max(needed, extent[static_cast<std::size_t>(batch.previous)].last + 1);
        } else if (again) {
            needed = std::max(needed, extent[newest[index(batch.adapter)]].last + 1 - count);
        }
    }
    return required;
}

/// Appends what bins take, from `first` to before `last`.
void add_bins(const PackRules& rules, const BlockItems& block, const Bins& bins, std::size_t first,
              std::size_t last, PipelineLoad& load) {
    AdapterLoads work;
    for (std::size_t b = first; b < last; ++b) {
        work.clear();
        for (const std::int32_t i : bins[b]) {
            const BlockItem& item = block.item(i);
            work.add(block.batch_of(i).adapter, {item.tokens, item.squares, item.targets});
        }
        add_times(load, rules.costs, rules.stages, rules.recompute, work);
    }
}

PipelineLoad load_without_bins(const PackRules& rules, std::size_t bins) {
    PipelineLoad load;
    load.stages = static_cast<std::int32_t>(rules.stages.size());
    load.max_in_flight = rules.max_in_flight;
    const std::size_t times = bins * rules.stages.size();
    load.forward.reserve(times);
    load.backward.reserve(times);
    return load;
}

/// What is there `repeats` times in a row.
void repeat(std::vector<std::int64_t>& times, int repeats) {
    const std::size_t once = times.size();
    times.resize(once * static_cast<std::size_t>(repeats));
    for (std::size_t i = once; i < times.size(); ++i) times[i] = times[i - once];
}

}  // namespace

BlockItems block_items(const PackRules& rules, std::span<const Round> rounds) {
    BlockItems block;
    block.capacity = rules.capacity;
    block.rounds = static_cast<std::int32_t>(rounds.size());
    const CostModel variable = variable_costs(rules.costs);
    std::map<AdapterId, std::int32_t> newest;
    for (std::size_t round = 0; round < rounds.size(); ++round) {
        for (const PendingBatch& pending : rounds[round]) {
            BlockBatch batch;
            batch.adapter = pending.adapter;
            batch.round = static_cast<std::int32_t>(round);
            batch.first_item = static_cast<std::int32_t>(block.items.size());
            batch.item_count =
                static_cast<std::int32_t>(pending.samples.size()) / pending.group_samples;
            const auto known = newest.find(pending.adapter);
            if (known != newest.end()) {
                batch.previous = known->second;
                LORATRAIN_CHECK(block.batch(known->second).round < batch.round, "adapter ",
                                number(pending.adapter), " has two batches in a round");
            }
            newest[pending.adapter] = static_cast<std::int32_t>(block.batches.size());
            block.batches.push_back(batch);
            add_batch(rules, variable, pending, block);
        }
    }
    return block;
}

PipelineLoad pipeline_load(const PackRules& rules, const BlockItems& block, const Bins& bins,
                           int repeats) {
    return repeated(times_of(rules, block, bins), block, bins, repeats);
}

PipelineLoad times_of(const PackRules& rules, const BlockItems& block, const Bins& bins) {
    PipelineLoad load = load_without_bins(rules, bins.size());
    add_bins(rules, block, bins, 0, bins.size(), load);
    return load;
}

PipelineLoad repeated(PipelineLoad load, const BlockItems& block, const Bins& bins, int repeats) {
    repeat(load.forward, repeats);
    repeat(load.backward, repeats);
    const std::vector<Extent> extent = extents(block, bins);
    load.required = required_backwards(block, extent, bins.size(), false);
    if (repeats == 1) return load;
    const std::vector<std::int32_t> again = required_backwards(block, extent, bins.size(), true);
    for (int i = 1; i < repeats; ++i) {
        const auto done = static_cast<std::int32_t>(bins.size()) * i;
        for (const std::int32_t needed : again) {
            load.required.push_back(std::max(0, needed + done));
        }
    }
    return load;
}

PipelineLoad changed_load(const PackRules& rules, const BlockItems& block, const Bins& bins,
                          const PipelineLoad& before, std::size_t from, std::size_t alike) {
    PipelineLoad load = load_without_bins(rules, bins.size());
    const auto first = static_cast<std::ptrdiff_t>(from * rules.stages.size());
    const auto last = static_cast<std::ptrdiff_t>(alike * rules.stages.size());
    load.forward.assign(before.forward.begin(), before.forward.begin() + first);
    load.backward.assign(before.backward.begin(), before.backward.begin() + first);
    add_bins(rules, block, bins, from, bins.size() - alike, load);
    load.forward.insert(load.forward.end(), before.forward.end() - last, before.forward.end());
    load.backward.insert(load.backward.end(), before.backward.end() - last, before.backward.end());
    load.required = required_backwards(block, extents(block, bins), bins.size(), false);
    return load;
}

std::vector<Microbatch> to_microbatches(std::span<const Round> rounds, const BlockItems& block,
                                        const Bins& bins) {
    std::vector<const PendingBatch*> pending;
    for (const Round& round : rounds) {
        for (const PendingBatch& batch : round) pending.push_back(&batch);
    }
    std::vector<Microbatch> microbatches;
    for (std::vector<std::int32_t> bin : bins) {
        std::sort(bin.begin(), bin.end(), [&](std::int32_t a, std::int32_t b) {
            return std::pair(block.batch_of(a).adapter, a) <
                   std::pair(block.batch_of(b).adapter, b);
        });
        std::vector<Segment>& segments = microbatches.emplace_back().segments;
        std::int32_t batch = -1;
        for (const std::int32_t i : bin) {
            const BlockItem& item = block.item(i);
            const PendingBatch& source = *pending[static_cast<std::size_t>(item.batch)];
            if (item.batch != batch) segments.push_back({source.adapter, source.step, {}});
            batch = item.batch;
            const auto first = source.samples.begin() + item.place;
            std::vector<SampleRef>& samples = segments.back().samples;
            samples.insert(samples.end(), first, first + item.samples);
        }
    }
    return microbatches;
}

}  // namespace loratrain

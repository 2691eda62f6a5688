#include "plan/pack/pack_block.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "plan/pack/length_buckets.h"
#include "plan/pack/pack_balanced.h"
#include "plan/pack/repair_packing.h"
#include "plan/schedule/check_packing.h"

namespace loratrain {

namespace {

constexpr int blocks_timed = 4;

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

Bins pack(const PackRules& rules, const BlockItems& block) {
    const auto stages = static_cast<std::int32_t>(rules.stages.size());
    switch (rules.policy) {
        case SchedulePolicy::sequential:
            return pack_sequential(block);
        case SchedulePolicy::one_f_one_b:
            return pack_one_f_one_b(block, stages);
        case SchedulePolicy::mlora:
            return pack_mlora(block, stages);
        case SchedulePolicy::balanced:
            break;
    }
    return pack_balanced_block(rules, block).bins;
}

bool pads(const PackRules& rules) {
    return rules.policy == SchedulePolicy::balanced && rules.packing == Packing::bucketed;
}

/// Pads a group of samples that still fits then.
void pad(std::span<SampleRef> group, std::span<const std::int32_t> bounds, std::int64_t capacity) {
    std::int64_t tokens = 0;
    for (const SampleRef& sample : group) tokens += padded_length(bounds, sample.tokens);
    if (tokens > capacity) return;
    for (SampleRef& sample : group) sample.tokens = padded_length(bounds, sample.tokens);
}

std::vector<Round> padded(std::span<const Round> rounds, std::int64_t capacity) {
    std::vector<Round> result(rounds.begin(), rounds.end());
    for (Round& round : result) {
        std::vector<std::int32_t> lengths;
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) lengths.push_back(sample.tokens);
        }
        const std::vector<std::int32_t> bounds = length_buckets(lengths, default_buckets);
        for (PendingBatch& batch : round) {
            const auto group = static_cast<std::size_t>(batch.group_samples);
            for (std::size_t i = 0; i < batch.samples.size(); i += group) {
                pad(std::span(batch.samples).subspan(i, group), bounds, capacity);
            }
        }
    }
    return result;
}

}  // namespace

std::vector<Microbatch> pack_block(const PackRules& rules, std::span<const Round> rounds) {
    LORATRAIN_CHECK(rules.capacity >= 1 && !rules.stages.empty(), "capacity ", rules.capacity, ", ",
                    rules.stages.size(), " stages");
    std::vector<Round> longer;
    if (pads(rules)) {
        longer = padded(rounds, rules.capacity);
        rounds = longer;
    }
    const BlockItems block = block_items(rules, rounds);
    std::vector<Microbatch> microbatches = to_microbatches(rounds, block, pack(rules, block));
    std::vector<std::string> findings = check_packing(rules.capacity, rounds, microbatches);
    if (!findings.empty()) {
        microbatches = repair_packing(rules.capacity, rounds, std::move(microbatches));
        findings = check_packing(rules.capacity, rounds, microbatches);
    }
    if (!findings.empty())
        throw Error(cat("the packing is not valid:\n  ", join(findings, "\n  ")));
    return microbatches;
}

double block_time(const PackRules& rules, std::span<const Round> rounds) {
    const std::vector<Round> longer =
        pads(rules) ? padded(rounds, rules.capacity) : std::vector<Round>();
    const BlockItems block = block_items(rules, pads(rules) ? longer : rounds);
    const Bins bins = pack(rules, block);
    const PipelineLoad load = pipeline_load(rules, block, bins, blocks_timed);
    return static_cast<double>(pipeline_time(load).makespan) / blocks_timed;
}

}  // namespace loratrain

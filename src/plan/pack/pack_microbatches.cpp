#include "plan/pack/pack_microbatches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/pack/check_packing.h"
#include "plan/pack/length_buckets.h"
#include "plan/pack/pack_balanced.h"
#include "plan/pack/pack_variants.h"

namespace loratrain {

namespace {

constexpr int blocks_timed = 4;

Bins pack(const PackRules& rules, const BlockItems& block, FillingCounts* fillings) {
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
    BalancedPacking packing = pack_balanced_block(rules, block);
    if (fillings != nullptr && !packing.bins.empty()) fillings->add(packing.variant.filling);
    return std::move(packing.bins);
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

std::vector<Round> padded(std::span<const Round> rounds, const PackRules& rules) {
    std::vector<Round> result(rounds.begin(), rounds.end());
    for (Round& round : result) {
        std::vector<std::int32_t> lengths;
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) lengths.push_back(sample.tokens);
        }
        std::vector<std::int32_t> bounds = length_buckets(lengths, default_buckets);
        bounds.insert(std::lower_bound(bounds.begin(), bounds.end(), rules.short_length),
                      rules.short_length);
        for (PendingBatch& batch : round) {
            const auto group = static_cast<std::size_t>(batch.group_samples);
            for (std::size_t i = 0; i < batch.samples.size(); i += group) {
                pad(std::span(batch.samples).subspan(i, group), bounds, rules.capacity);
            }
        }
    }
    return result;
}

}  // namespace

std::vector<Microbatch> pack_microbatches(const PackRules& rules, std::span<const Round> rounds,
                                          FillingCounts* fillings) {
    LORATRAIN_CHECK(rules.capacity >= 1 && !rules.stages.empty(), "capacity ", rules.capacity, ", ",
                    rules.stages.size(), " stages");
    std::vector<Round> longer;
    if (pads(rules)) {
        longer = padded(rounds, rules);
        rounds = longer;
    }
    const BlockItems block = block_items(rules, rounds);
    std::vector<Microbatch> microbatches =
        to_microbatches(rounds, block, pack(rules, block, fillings));
    std::vector<std::string> findings = check_packing(rules.capacity, rounds, microbatches);
    if (!findings.empty()) {
        microbatches = repair_packing(rules.capacity, rounds, std::move(microbatches));
        findings = check_packing(rules.capacity, rounds, microbatches);
    }
    if (!findings.empty())
        throw Error(cat("the packing is not valid:\n  ", join(findings, "\n  ")));
    return microbatches;
}

std::vector<double> block_times(const PackRules& rules, std::span<const PackRules> timed,
                                std::span<const Round> rounds, PackingsByDepth& known) {
    const std::vector<Round> longer = pads(rules) ? padded(rounds, rules) : std::vector<Round>();
    const BlockItems block = block_items(rules, pads(rules) ? longer : rounds);
    std::vector<double> times(timed.size(), std::numeric_limits<double>::infinity());
    for (const std::int32_t depth :
         std::set{timed.front().max_in_flight, timed.back().max_in_flight}) {
        const auto [packing, fresh] = known.try_emplace(depth);
        Bins& bins = packing->second;
        if (fresh) {
            PackRules packed_for = rules;
            packed_for.max_in_flight = depth;
            bins = pack(packed_for, block, nullptr);
        }
        for (std::size_t i = 0; i < timed.size(); ++i) {
            const PipelineLoad load = pipeline_load(timed[i], block, bins, blocks_timed);
            const auto makespan = static_cast<double>(pipeline_time(load).makespan);
            times[i] = std::min(times[i], makespan / blocks_timed);
        }
    }
    return times;
}

namespace {

constexpr std::array<std::string_view, 6> filling_words{
    "filled", "filled by MILP", "evened", "streamed", "one adapter a microbatch", "improved"};

}  // namespace

void FillingCounts::add(const FillingCounts& other) {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] += other.blocks[i];
}

std::int64_t FillingCounts::all() const {
    return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
}

std::string to_text(const FillingCounts& counts) {
    std::vector<std::size_t> most_first(filling_words.size());
    std::iota(most_first.begin(), most_first.end(), 0);
    std::stable_sort(most_first.begin(), most_first.end(), [&](std::size_t a, std::size_t b) {
        return counts.blocks[a] > counts.blocks[b];
    });
    std::vector<std::string> parts;
    for (const std::size_t i : most_first) {
        if (counts.blocks[i] > 0) parts.push_back(cat(counts.blocks[i], " ", filling_words[i]));
    }
    const std::int64_t all = counts.all();
    return all == 0 ? "" : cat(all, all == 1 ? " block: " : " blocks: ", join(parts, ", "));
}

}  // namespace loratrain

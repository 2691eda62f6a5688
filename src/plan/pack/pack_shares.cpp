#include "plan/pack/pack_shares.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "plan/timing/pipeline_time.h"

namespace loratrain {

namespace {

/// Of the time of a round: so short sums are not worth being hidden.
constexpr double nanosecond = 1e-9;
constexpr double short_sums = 0.002;

using Adapters = std::set<AdapterId>;

Adapters adapters_of(std::span<const Round> shares) {
    Adapters adapters;
    for (const Round& round : shares) {
        for (const PendingBatch& batch : round) adapters.insert(batch.adapter);
    }
    return adapters;
}

/// About half of them by tokens.
Adapters first_part_of(const Adapters& all, std::span<const SharedAdapter> shared) {
    std::vector<AdapterId> order(all.begin(), all.end());
    const auto tokens = [&](AdapterId a) { return shared[index(a)].tokens; };
    std::stable_sort(order.begin(), order.end(),
                     [&](AdapterId a, AdapterId b) { return tokens(a) > tokens(b); });
    Adapters first;
    std::int64_t ahead = 0;
    for (const AdapterId adapter : order) {
        const bool to_first = ahead <= 0;
        if (to_first) first.insert(adapter);
        ahead += to_first ? tokens(adapter) : -tokens(adapter);
    }
    return first;
}

double sum_seconds(const Adapters& adapters, std::span<const SharedAdapter> shared) {
    double seconds = 0.0;
    for (const AdapterId adapter : adapters) seconds += shared[index(adapter)].exchange_seconds;
    return seconds;
}

PackedShares unpacked(std::size_t replicas, const Adapters& adapters) {
    PackedShares result;
    result.replicas.resize(replicas);
    result.ends.assign(adapters.begin(), adapters.end());
    return result;
}

/// Of one replica, and of these adapters alone.
void pack_share(const PackRules& rules, const Round& share, const Adapters& adapters,
                std::size_t replica, PackedShares& result) {
    Round part;
    for (const PendingBatch& batch : share) {
        if (adapters.contains(batch.adapter)) part.push_back(batch);
    }
    if (part.empty()) return;
    result.replicas[replica] = pack_microbatches(rules, {&part, 1}, &result.fillings);
}

PackedShares packed(std::span<const PackRules> rules, std::span<const Round> shares,
                    const Adapters& adapters) {
    PackedShares result = unpacked(shares.size(), adapters);
    for (std::size_t r = 0; r < shares.size(); ++r) {
        pack_share(rules[r], shares[r], adapters, r, result);
    }
    return result;
}

PackedShares one_after_the_other(PackedShares first, const PackedShares& second) {
    for (std::size_t r = 0; r < first.replicas.size(); ++r) {
        first.replicas[r].insert(first.replicas[r].end(), second.replicas[r].begin(),
                                 second.replicas[r].end());
    }
    first.ends.insert(first.ends.end(), second.ends.begin(), second.ends.end());
    first.fillings.add(second.fillings);
    return first;
}

PipelineLoad load_of_share(const PackRules& rules, std::span<const Microbatch> microbatches) {
    PipelineLoad load;
    load.stages = static_cast<std::int32_t>(rules.stages.size());
    load.max_in_flight = rules.max_in_flight;
    for (const Microbatch& microbatch : microbatches) {
        add_times(load, rules.costs, rules.stages, rules.recompute,
                  loads_of(microbatch, rules.span));
        load.required.push_back(0);
    }
    return load;
}

double pipeline_seconds(const PackRules& rules, std::span<const Microbatch> microbatches) {
    return nanosecond *
           static_cast<double>(pipeline_time(load_of_share(rules, microbatches)).makespan);
}

/// Per microbatch, of a pipeline that is full, in nanoseconds.
std::vector<std::int64_t> ends_of(const PackRules& rules,
                                  std::span<const Microbatch> microbatches) {
    const PipelineLoad load = load_of_share(rules, microbatches);
    const auto stages = static_cast<std::size_t>(load.stages);
    std::vector<std::int64_t> ends;
    std::int64_t end = 0;
    for (std::size_t i = 0; i < load.forward.size(); i += stages) {
        std::int64_t slowest = 0;
        for (std::size_t s = i; s < i + stages; ++s) {
            slowest = std::max(slowest, load.forward[s] + load.backward[s]);
        }
        ends.push_back(end += slowest);
    }
    return ends;
}

/// Where the pipeline is full before and behind.
double full_seconds(const PackRules& rules, std::span<const Microbatch> microbatches) {
    const std::vector<std::int64_t> ends = ends_of(rules, microbatches);
    return ends.empty() ? 0.0 : nanosecond * static_cast<double>(ends.back());
}

/// Of the replica that takes longest, by one of the two above.
template <class Seconds>
double slowest_replica(std::span<const PackRules> rules, const PackedShares& packing,
                       Seconds seconds_of) {
    double seconds = 0.0;
    for (std::size_t r = 0; r < rules.size(); ++r) {
        seconds = std::max(seconds, seconds_of(rules[r], packing.replicas[r]));
    }
    return seconds;
}

/// Those first whose batches are first over on all replicas.
void sort_by_end(std::span<const PackRules> rules, PackedShares& packing) {
    std::map<AdapterId, std::int64_t> over;
    for (std::size_t r = 0; r < rules.size(); ++r) {
        const std::vector<Microbatch>& microbatches = packing.replicas[r];
        const std::vector<std::int64_t> ends = ends_of(rules[r], microbatches);
        for (std::size_t m = 0; m < microbatches.size(); ++m) {
            for (const Segment& segment : microbatches[m].segments) {
                std::int64_t& of_adapter = over[segment.adapter];
                of_adapter = std::max(of_adapter, ends[m]);
            }
        }
    }
    std::stable_sort(packing.ends.begin(), packing.ends.end(),
                     [&](AdapterId a, AdapterId b) { return over[a] < over[b]; });
}

struct TwoParts {
    PackedShares packing;
    double apart = 0.0;  ///< seconds from one round to the next
};

TwoParts packed_in_two(std::span<const PackRules> rules, std::span<const Round> shares,
                       std::span<const SharedAdapter> adapters, const Adapters& all) {
    const Adapters first = first_part_of(all, adapters);
    Adapters second;
    std::set_difference(all.begin(), all.end(), first.begin(), first.end(),
                        std::inserter(second, second.end()));
    const PackedShares one = packed(rules, shares, first);
    const PackedShares other = packed(rules, shares, second);
    PackedShares both = one_after_the_other(one, other);
    // Rounds of an adapter are apart by all that is computed, at least by its part and its sums.
    // The first part of the next round follows at once: the pipeline stays full.
    const double apart =
        std::max({slowest_replica(rules, both, full_seconds),
                  slowest_replica(rules, one, pipeline_seconds) + sum_seconds(first, adapters),
                  slowest_replica(rules, other, pipeline_seconds) + sum_seconds(second, adapters)});
    return {std::move(both), apart};
}

/// As a whole or in two parts. One replica that takes longer as a whole is enough: the others are
/// not packed so.
PackedShares packed_in_parts(std::span<const PackRules> rules, std::span<const Round> shares,
                             std::span<const SharedAdapter> adapters) {
    const Adapters all = adapters_of(shares);
    const double sums = sum_seconds(all, adapters);
    PackedShares whole = unpacked(shares.size(), all);
    std::optional<TwoParts> parts;
    double compute = 0.0;
    for (std::size_t r = 0; r < shares.size(); ++r) {
        pack_share(rules[r], shares[r], all, r, whole);
        compute = std::max(compute, pipeline_seconds(rules[r], whole.replicas[r]));
        if (all.size() < 2 || sums < short_sums * compute) continue;
        if (!parts) parts = packed_in_two(rules, shares, adapters, all);
        if (parts->apart < compute + sums) return std::move(parts->packing);
    }
    return whole;
}

}  // namespace

PackedShares pack_shares(std::span<const PackRules> rules, std::span<const Round> shares,
                         std::span<const SharedAdapter> adapters) {
    PackedShares packing = packed_in_parts(rules, shares, adapters);
    sort_by_end(rules, packing);
    return packing;
}

}  // namespace loratrain

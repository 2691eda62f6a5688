#include "plan/pack/repair_packing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "plan/pack/check_packing.h"

namespace loratrain {

namespace {

using RoundOf = std::map<std::pair<AdapterId, std::int32_t>, std::size_t>;

RoundOf round_of_batches(std::span<const Round> rounds) {
    RoundOf round_of;
    for (std::size_t r = 0; r < rounds.size(); ++r) {
        for (const PendingBatch& batch : rounds[r]) round_of[{batch.adapter, batch.step}] = r;
    }
    return round_of;
}

std::size_t round_of(const RoundOf& rounds, const Segment& segment) {
    const auto found = rounds.find({segment.adapter, segment.step});
    return found == rounds.end() ? 0 : found->second;
}

/// Adapters with a step that does not come after the one before.
std::set<AdapterId> out_of_order(const std::vector<Microbatch>& microbatches) {
    std::map<AdapterId, std::pair<std::int32_t, std::size_t>> newest;
    std::set<AdapterId> found;
    for (std::size_t m = 0; m < microbatches.size(); ++m) {
        for (const Segment& segment : microbatches[m].segments) {
            const auto [known, fresh] = newest.try_emplace(segment.adapter, segment.step, m);
            auto& [step, at] = known->second;
            if (!fresh && (segment.step < step || (segment.step > step && at == m))) {
                found.insert(segment.adapter);
            }
            step = std::max(step, segment.step);
            at = m;
        }
    }
    return found;
}

/// Splits the microbatches that hold one of the adapters, or all when there are none; then sorts.
std::vector<Microbatch> split(const RoundOf& rounds, const std::vector<Microbatch>& microbatches,
                              const std::set<AdapterId>& adapters) {
    std::vector<std::pair<std::size_t, Microbatch>> parts;
    for (const Microbatch& microbatch : microbatches) {
        const bool whole =
            !adapters.empty() &&
            std::none_of(microbatch.segments.begin(), microbatch.segments.end(),
                         [&](const Segment& s) { return adapters.contains(s.adapter); });
        std::map<std::size_t, Microbatch> by_round;
        std::size_t first = rounds.size();
        for (const Segment& s : microbatch.segments) first = std::min(first, round_of(rounds, s));
        for (const Segment& segment : microbatch.segments) {
            by_round[whole ? first : round_of(rounds, segment)].segments.push_back(segment);
        }
        for (auto& [round, part] : by_round) parts.emplace_back(round, std::move(part));
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Microbatch> result;
    result.reserve(parts.size());
    for (auto& [round, part] : parts) result.push_back(std::move(part));
    return result;
}

}  // namespace

std::vector<Microbatch> repair_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::vector<Microbatch> microbatches) {
    const std::set<AdapterId> adapters = out_of_order(microbatches);
    if (adapters.empty()) return microbatches;
    const RoundOf round_of = round_of_batches(rounds);
    std::vector<Microbatch> repaired = split(round_of, microbatches, adapters);
    if (check_packing(capacity, rounds, repaired).empty()) return repaired;
    return split(round_of, microbatches, {});
}

}  // namespace loratrain

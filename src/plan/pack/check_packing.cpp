#include "plan/pack/check_packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "plan/findings.h"

namespace loratrain {

namespace {

class PackingCheck {
  public:
    explicit PackingCheck(std::span<const Round> rounds) {
        for (const Round& round : rounds) {
            for (const PendingBatch& batch : round) {
                Expected& expected = batches_[{batch.adapter, batch.step}];
                for (const SampleRef& sample : batch.samples) {
                    expected.place.emplace(sample.index, expected.samples.size());
                    expected.samples.push_back(sample);
                }
                expected.seen.assign(expected.samples.size(), nowhere);
                expected.group_samples = static_cast<std::size_t>(batch.group_samples);
            }
        }
    }

    std::vector<std::string> run(std::int64_t capacity, std::span<const Microbatch> microbatches) {
        for (std::size_t m = 0; m < microbatches.size(); ++m) {
            const Microbatch& microbatch = microbatches[m];
            if (microbatch.segments.empty()) findings_.add("microbatch ", m, " is empty");
            if (microbatch.tokens() > capacity) {
                findings_.add("microbatch ", m, " has ", microbatch.tokens(), " tokens, more than ",
                              capacity);
            }
            std::set<AdapterId> adapters;
            for (const Segment& segment : microbatch.segments) {
                if (!adapters.insert(segment.adapter).second) {
                    findings_.add("microbatch ", m, " has two segments of adapter ",
                                  number(segment.adapter));
                }
                check_segment(m, segment);
            }
        }
        for (const auto& [key, expected] : batches_) check_complete(key, expected);
        return findings_.take();
    }

  private:
    static constexpr auto nowhere = std::numeric_limits<std::size_t>::max();

    using Key = std::pair<AdapterId, std::int32_t>;
    struct Expected {
        std::vector<SampleRef> samples;
        std::multimap<std::int32_t, std::size_t> place;  ///< of a sample index
        std::vector<std::size_t> seen;                   ///< microbatch of each sample
        std::size_t group_samples = 1;
    };
    struct Newest {
        std::int32_t step = 0;
        std::size_t microbatch = 0;
    };

    void check_segment(std::size_t m, const Segment& segment) {
        const std::string name =
            cat("microbatch ", m, ", batch (", number(segment.adapter), ", ", segment.step, ")");
        if (segment.samples.empty()) findings_.add(name, " has an empty segment");
        check_order(m, segment, name);
        const auto found = batches_.find({segment.adapter, segment.step});
        if (found == batches_.end()) {
            findings_.add(name, " is not of these rounds");
            return;
        }
        std::size_t next = 0;
        for (const SampleRef& sample : segment.samples) {
            check_sample(m, sample, name, found->second, next);
        }
    }

    void check_order(std::size_t m, const Segment& segment, const std::string& name) {
        const auto [known, fresh] = newest_.try_emplace(segment.adapter, Newest{segment.step, m});
        Newest& newest = known->second;
        if (fresh) return;
        const bool earlier = segment.step < newest.step;
        if (earlier || (segment.step > newest.step && m <= newest.microbatch)) {
            findings_.add(name, " does not come after step ", newest.step);
        }
        if (!earlier) newest = {segment.step, m};
    }

    /// `next`: the least place in the batch that keeps the batch's order.
    void check_sample(std::size_t m, const SampleRef& sample, const std::string& name,
                      Expected& expected, std::size_t& next) {
        const auto [first, last] = expected.place.equal_range(sample.index);
        if (first == last) {
            findings_.add(name, " has a foreign sample ", sample.index);
            return;
        }
        for (auto at = first; at != last; ++at) {
            const std::size_t place = at->second;
            if (expected.seen[place] != nowhere) continue;
            expected.seen[place] = m;
            if (place < next) findings_.add(name, " has sample ", sample.index, " out of order");
            next = place + 1;
            if (sample.tokens < expected.samples[place].tokens) {
                findings_.add(name, " cuts sample ", sample.index, " to ", sample.tokens,
                              " tokens");
            }
            if (sample.targets != expected.samples[place].targets) {
                findings_.add(name, " has sample ", sample.index, " with ", sample.targets,
                              " targets");
            }
            return;
        }
        findings_.add(name, " has sample ", sample.index, " a second time");
    }

    void check_complete(const Key& key, const Expected& expected) {
        for (std::size_t place = 0; place < expected.seen.size(); ++place) {
            check_group(key, expected, place);
            if (expected.seen[place] != nowhere) continue;
            findings_.add("batch (", number(key.first), ", ", key.second, ") lacks sample ",
                          expected.samples[place].index);
        }
    }

    void check_group(const Key& key, const Expected& expected, std::size_t place) {
        const std::size_t first = place - place % expected.group_samples;
        if (expected.seen[place] == expected.seen[first]) return;
        findings_.add("batch (", number(key.first), ", ", key.second, ") has sample ",
                      expected.samples[place].index, " in another microbatch than sample ",
                      expected.samples[first].index, " of its group");
    }

    std::map<Key, Expected> batches_;
    std::map<AdapterId, Newest> newest_;
    Findings findings_;
};

}  // namespace

std::vector<std::string> check_packing(std::int64_t capacity, std::span<const Round> rounds,
                                       std::span<const Microbatch> microbatches) {
    return PackingCheck(rounds).run(capacity, microbatches);
}

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

#include "plan/pack/pack_microbatches.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

namespace loratrain {

namespace {

using BinOf = std::vector<std::size_t>;  ///< of each item

/// Microbatches that first-fit in order needs.
std::size_t first_fit_count(std::span<const PackItem> items, std::int64_t capacity) {
    std::vector<std::int64_t> room;
    for (const PackItem& item : items) {
        const std::int64_t tokens = item.tokens();
        const auto found = std::find_if(room.begin(), room.end(),
                                        [&](std::int64_t left) { return left >= tokens; });
        if (found == room.end()) {
            room.push_back(capacity - tokens);
        } else {
            *found -= tokens;
        }
    }
    return room.size();
}

std::vector<std::size_t> longest_items_first(std::span<const PackItem> items) {
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return items[a].tokens() > items[b].tokens();
    });
    return order;
}

/// None when a bin would exceed the capacity.
std::optional<BinOf> balance(std::span<const PackItem> items, std::int64_t capacity,
                             std::size_t bins) {
    using Load = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest;
    for (std::size_t bin = 0; bin < bins; ++bin) lightest.emplace(0, bin);
    BinOf bin_of(items.size());
    for (const std::size_t item : longest_items_first(items)) {
        const auto [load, bin] = lightest.top();
        lightest.pop();
        const std::int64_t tokens = load + items[item].tokens();
        if (tokens > capacity) return std::nullopt;
        bin_of[item] = bin;
        lightest.emplace(tokens, bin);
    }
    return bin_of;
}

std::vector<Microbatch> build(std::span<const PackItem> items, const BinOf& bin_of) {
    std::vector<std::size_t> position(items.size(), items.size());
    std::vector<Microbatch> microbatches;
    for (std::size_t i = 0; i < items.size(); ++i) {
        std::size_t& at = position[bin_of[i]];
        if (at == items.size()) {
            at = microbatches.size();
            microbatches.emplace_back();
        }
        std::vector<Segment>& segments = microbatches[at].segments;
        if (segments.empty() || segments.back().adapter != items[i].adapter) {
            segments.push_back({items[i].adapter, items[i].step, {}});
        }
        std::vector<SampleRef>& samples = segments.back().samples;
        samples.insert(samples.end(), items[i].samples.begin(), items[i].samples.end());
    }
    return microbatches;
}

}  // namespace

std::int64_t PackItem::tokens() const {
    return std::accumulate(
        samples.begin(), samples.end(), std::int64_t{0},
        [](std::int64_t sum, const SampleRef& sample) { return sum + sample.tokens; });
}

std::vector<Microbatch> pack_items(std::span<const PackItem> items, std::int64_t capacity,
                                   std::int64_t at_least) {
    if (items.empty()) return {};
    const std::size_t wanted = std::min(items.size(), static_cast<std::size_t>(at_least));
    std::size_t bins = std::max(wanted, first_fit_count(items, capacity));
    while (bins < items.size()) {
        if (const std::optional<BinOf> bin_of = balance(items, capacity, bins)) {
            return build(items, *bin_of);
        }
        bins += 1 + bins / 64;
    }
    BinOf alone(items.size());
    std::iota(alone.begin(), alone.end(), 0);
    return build(items, alone);
}

}  // namespace loratrain

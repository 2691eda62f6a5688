#include "plan/pack/pack_variants.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/threads.h"

namespace loratrain {

namespace {

struct AdapterLengths {
    AdapterId adapter{};
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    double mean() const {
        return static_cast<double>(tokens) /
               static_cast<double>(std::max<std::int64_t>(1, samples));
    }
};

/// Of those that have samples, by AdapterId.
std::vector<AdapterLengths> adapter_lengths(const BlockItems& block) {
    std::vector<AdapterLengths> lengths;
    for (const BlockBatch& batch : block.batches) {
        if (lengths.size() <= index(batch.adapter)) lengths.resize(index(batch.adapter) + 1);
        AdapterLengths& of = lengths[index(batch.adapter)];
        of.adapter = batch.adapter;
        of.samples += batch.item_count;
        for (std::int32_t i = 0; i < batch.item_count; ++i) {
            of.tokens += block.item(batch.first_item + i).tokens;
        }
    }
    std::erase_if(lengths, [](const AdapterLengths& of) { return of.samples == 0; });
    return lengths;
}

/// Group of every adapter, by AdapterId; groups numbered by their first adapter.
std::vector<std::int32_t> head_tail_groups(const BlockItems& block, std::int32_t groups) {
    constexpr std::int32_t none = -1;
    std::vector<AdapterLengths> order = adapter_lengths(block);
    if (order.empty()) return {};
    std::vector<std::int32_t> group_of(index(order.back().adapter) + 1, none);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.mean() > b.mean(); });
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto turn = static_cast<std::int32_t>(i) / groups;
        const auto place = static_cast<std::int32_t>(i) % groups;
        group_of[index(order[i].adapter)] = turn % 2 == 0 ? place : groups - 1 - place;
    }
    std::vector<std::int32_t> renumbered(static_cast<std::size_t>(groups), none);
    std::int32_t next = 0;
    for (std::int32_t& group : group_of) {
        if (group == none) continue;
        std::int32_t& renamed = renumbered[static_cast<std::size_t>(group)];
        if (renamed == none) renamed = next++;
        group = renamed;
    }
    return group_of;
}

/// Bins of positions in `items` as bins of the items.
Bins named(Bins bins, const std::vector<std::int32_t>& items) {
    for (auto& bin : bins) {
        for (std::int32_t& item : bin) item = items[static_cast<std::size_t>(item)];
    }
    return bins;
}

std::vector<std::int64_t> tokens_of(const BlockItems& block, const Portion& portion) {
    std::vector<std::int64_t> tokens;
    for (const std::int32_t item : portion.items) tokens.push_back(block.item(item).tokens);
    return tokens;
}

/// Microbatches of equal cost that bring it nearest to the target, if they all fit.
std::int64_t wanted_bins(const BlockItems& block, const Portion& portion, std::int64_t target) {
    std::int64_t cost = 0;
    for (const std::int32_t item : portion.items) cost += block.item(item).cost;
    return std::clamp<std::int64_t>((cost + target / 2) / target, 1, std::ssize(portion.items));
}

Bins evened(const BlockItems& block, const Portion& portion, std::int64_t bins) {
    std::vector<PackSize> sizes;
    sizes.reserve(portion.items.size());
    for (const std::int32_t item : portion.items) {
        sizes.push_back({block.item(item).tokens, block.item(item).cost});
    }
    const auto most = std::ssize(sizes);
    bins = std::max(bins, least_bins(tokens_of(block, portion), block.capacity));
    for (; bins < most; bins += 1 + bins / 64) {
        if (auto packed = pack_even(sizes, block.capacity, bins)) {
            return named(std::move(*packed), portion.items);
        }
    }
    return named(*pack_even(sizes, block.capacity, most), portion.items);
}

/// From falling cost.
Bins ordered(Bins bins, BinOrder order) {
    if (order == BinOrder::falling) return bins;
    std::reverse(bins.begin(), bins.end());
    if (order == BinOrder::rising) return bins;
    Bins up;
    Bins down;
    for (std::size_t i = 0; i < bins.size(); ++i) {
        (i % 2 == 0 ? up : down).push_back(std::move(bins[i]));
    }
    up.insert(up.end(), std::make_move_iterator(down.rbegin()),
              std::make_move_iterator(down.rend()));
    return up;
}

}  // namespace

std::vector<Portion> portions(const BlockItems& block, std::int32_t groups) {
    const std::vector<std::int32_t> group_of = head_tail_groups(block, groups);
    std::vector<Portion> all(static_cast<std::size_t>(block.rounds * groups));
    for (std::size_t b = 0; b < block.batches.size(); ++b) {
        const BlockBatch& batch = block.batches[b];
        const std::int32_t turn = batch.round * groups + group_of[index(batch.adapter)];
        Portion& portion = all[static_cast<std::size_t>(turn)];
        portion.batches.push_back(static_cast<std::int32_t>(b));
        for (std::int32_t i = 0; i < batch.item_count; ++i) {
            portion.items.push_back(batch.first_item + i);
        }
    }
    std::erase_if(all, [](const Portion& portion) { return portion.items.empty(); });
    for (Portion& portion : all) {
        portion.costly_first = portion.items;
        std::stable_sort(portion.costly_first.begin(), portion.costly_first.end(),
                         [&](auto a, auto b) { return block.item(a).cost > block.item(b).cost; });
    }
    return all;
}

std::vector<Bins> pack_filled(const BlockItems& block, const std::vector<Portion>& portions,
                              const PackRules& rules, bool milp) {
    std::vector<Bins> packed(portions.size());
    parallel_for(portions.size(), rules.threads, [&](std::size_t p) {
        const std::vector<std::int64_t> tokens = tokens_of(block, portions[p]);
        Bins bins = milp ? pack_fewest(tokens, block.capacity, {true, rules.solver_seconds})
                         : pack_greedy(tokens, block.capacity);
        packed[p] = named(std::move(bins), portions[p].items);
    });
    return packed;
}

PortionCounts evened_counts(const BlockItems& block, const std::vector<Portion>& portions,
                            std::int64_t target) {
    PortionCounts counts;
    counts.reserve(portions.size());
    for (const Portion& portion : portions) counts.push_back(wanted_bins(block, portion, target));
    return counts;
}

std::vector<Bins> pack_evened(const BlockItems& block, const std::vector<Portion>& portions,
                              const PortionCounts& counts) {
    std::vector<Bins> packed;
    packed.reserve(portions.size());
    for (std::size_t p = 0; p < portions.size(); ++p) {
        packed.push_back(evened(block, portions[p], counts[p]));
    }
    return packed;
}

Bins concatenate(std::vector<Bins> packed, BinOrder order) {
    Bins bins;
    for (Bins& of_portion : packed) {
        Bins turned = ordered(std::move(of_portion), order);
        bins.insert(bins.end(), std::make_move_iterator(turned.begin()),
                    std::make_move_iterator(turned.end()));
    }
    return bins;
}

Bins pack_variant(const PackRules& rules, const BlockItems& block, const PackVariant& variant) {
    return pack_variant(rules, block, portions(block, variant.groups), variant);
}

Bins pack_variant(const PackRules& rules, const BlockItems& block,
                  const std::vector<Portion>& parts, const PackVariant& variant) {
    switch (variant.filling) {
        case Filling::filled:
        case Filling::fewest: {
            const bool milp = variant.filling == Filling::fewest;
            return merge_portions(rules, block, pack_filled(block, parts, rules, milp)).bins;
        }
        case Filling::evened:
            return concatenate(
                pack_evened(block, parts, evened_counts(block, parts, variant.target)),
                variant.order);
        case Filling::streamed:
            return pack_stream(block, parts, variant.target);
        case Filling::in_turn:
            return pack_mlora(block, static_cast<std::int32_t>(rules.stages.size()));
        case Filling::improved:
            break;  // no way to pack, but what became of one
    }
    return {};
}

}  // namespace loratrain

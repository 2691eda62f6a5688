#include "plan/pack/pack_variants.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/parallel_for.h"
#include "plan/pack/pack_alone.h"

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

std::vector<AdapterLengths> adapter_lengths(const BlockItems& block) {
    std::map<AdapterId, AdapterLengths> lengths;
    for (const BlockBatch& batch : block.batches) {
        AdapterLengths& of = lengths[batch.adapter];
        of.adapter = batch.adapter;
        of.samples += batch.item_count;
        for (std::int32_t i = 0; i < batch.item_count; ++i) {
            of.tokens += block.item(batch.first_item + i).tokens;
        }
    }
    std::vector<AdapterLengths> result;
    result.reserve(lengths.size());
    for (const auto& [adapter, of] : lengths) result.push_back(of);
    return result;
}

/// Group of every adapter, groups numbered by their first adapter.
std::map<AdapterId, std::int32_t> head_tail_groups(const BlockItems& block, std::int32_t groups) {
    std::vector<AdapterLengths> order = adapter_lengths(block);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.mean() > b.mean(); });
    std::map<AdapterId, std::int32_t> dealt;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto turn = static_cast<std::int32_t>(i) / groups;
        const auto place = static_cast<std::int32_t>(i) % groups;
        dealt[order[i].adapter] = turn % 2 == 0 ? place : groups - 1 - place;
    }
    std::map<std::int32_t, std::int32_t> renumbered;
    std::map<AdapterId, std::int32_t> result;
    for (const auto& [adapter, group] : dealt) {
        const auto fresh = static_cast<std::int32_t>(renumbered.size());
        result[adapter] = renumbered.try_emplace(group, fresh).first->second;
    }
    return result;
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

Bins evened(const BlockItems& block, const Portion& portion, std::int64_t target) {
    std::vector<PackSize> sizes;
    std::int64_t cost = 0;
    for (const std::int32_t item : portion.items) {
        sizes.push_back({block.item(item).tokens, block.item(item).cost});
        cost += sizes.back().cost;
    }
    const auto most = std::ssize(sizes);
    std::int64_t bins = std::clamp<std::int64_t>((cost + target / 2) / target, 1, most);
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
    for (std::size_t i = 0; i < bins.size(); ++i) (i % 2 == 0 ? up : down).push_back(bins[i]);
    up.insert(up.end(), down.rbegin(), down.rend());
    return up;
}

}  // namespace

std::vector<Portion> portions(const BlockItems& block, std::int32_t groups) {
    const std::map<AdapterId, std::int32_t> group_of = head_tail_groups(block, groups);
    std::vector<Portion> all(static_cast<std::size_t>(block.rounds * groups));
    for (std::size_t b = 0; b < block.batches.size(); ++b) {
        const BlockBatch& batch = block.batches[b];
        const std::int32_t turn = batch.round * groups + group_of.at(batch.adapter);
        Portion& portion = all[static_cast<std::size_t>(turn)];
        portion.batches.push_back(static_cast<std::int32_t>(b));
        for (std::int32_t i = 0; i < batch.item_count; ++i) {
            portion.items.push_back(batch.first_item + i);
        }
    }
    std::erase_if(all, [](const Portion& portion) { return portion.items.empty(); });
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

std::vector<Bins> pack_evened(const BlockItems& block, const std::vector<Portion>& portions,
                              std::int64_t target) {
    std::vector<Bins> packed;
    packed.reserve(portions.size());
    for (const Portion& portion : portions) packed.push_back(evened(block, portion, target));
    return packed;
}

Bins concatenate(const std::vector<Bins>& packed, BinOrder order) {
    Bins bins;
    for (const Bins& of_portion : packed) {
        Bins turned = ordered(of_portion, order);
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
            return concatenate(pack_evened(block, parts, variant.target), variant.order);
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

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/pack/block_items.h"

namespace loratrain {

/// What no packing of a block can have less of.
struct BlockBound {
    std::int64_t bins = 0;     ///< microbatches
    double nanoseconds = 0.0;  ///< per block, where blocks like it follow each other for ever
};

/// Let a microbatch of tokens n, squares q and targets g take F(s) + v(s) . (n, q, g) on stage s,
/// forward and backward together (cost_model.h; stages that compute every adapter in all layers).
///
/// Work. Over a block the second part sums to V(s) = v(s) . (all tokens, squares, targets), however
/// the samples are packed, and the first to F(s) for each of N microbatches, of which there are at
/// least B = least_bins(lengths, capacity) (pack_batch.h: L2 of Martello and Toth, and the sum of
/// lengths). A stage does one thing at a time: where blocks follow each other for ever, a block
/// takes T >= V(s) + N F(s).
///
/// Dependences. The batches of an adapter come one after another: no forward of the next on the
/// first stage before the last backward of this one there. With F = sum of F(s), c(m) the second
/// part of a microbatch over all stages and c(m, b) that of batch b's samples in it, a batch takes
/// at least D(b) >= F + c(m) for each of its microbatches. Let n(b) = sum over them of
/// c(m, b) / c(m), which sums to N over all batches. Then w(b), the sum of c(m, b), is at most
/// n(b) (D(b) - F), so D(b) >= F + w(b) / n(b), and D(b) >= F + c of its costliest sample. Over a
/// block T >= sum of D(b) of every adapter a with J(a) batches, for which it needs, by the
/// inequality of Cauchy and Schwarz,
///   sum of n(b) >= (sum of sqrt w(b))^2 / (T - J(a) F).
///
/// The bound is the least T for which T >= V(s) + max(B, sum of these over adapters) F(s) on every
/// stage. That a microbatch waits for others on the way, that samples are not divisible, and what
/// hosts take are left out: what is possible may be above it.
class BlockBounds {
  public:
    BlockBounds(const PackRules& rules, const BlockItems& block) {
        CostModel costs = rules.costs;
        costs.host = {};
        const AdapterLoads all = add_items(block);
        least_ = least_bins(lengths_, block.capacity);
        for (const StagePlan& stage : rules.stages) {
            const double fixed = stage_seconds(costs, stage, AdapterLoads(), rules.recompute);
            fixed_.push_back(1e9 * fixed);
            variable_.push_back(1e9 * stage_seconds(costs, stage, all, rules.recompute) -
                                fixed_.back());
            round_trip_ += fixed_.back();
        }
    }

    BlockBound bound() const {
        double low = 0.0;
        for (const auto& [adapter, chain] : chains_) {
            low = std::max(low, chain.batches * round_trip_ + chain.costliest);
        }
        double high = std::max(low, 1.0);
        while (!suffices(high)) high *= 2.0;
        for (int i = 0; i < 60; ++i) {
            const double middle = 0.5 * (low + high);
            (suffices(middle) ? high : low) = middle;
        }
        return {least_, low};
    }

  private:
    struct Chain {
        double batches = 0.0;
        double costliest = 0.0;  ///< sum of every batch's
        double roots = 0.0;      ///< sum of square roots of w(b)
    };

    AdapterLoads add_items(const BlockItems& block) {
        AdapterLoads all;
        for (const BlockBatch& batch : block.batches) {
            double cost = 0.0;
            double costliest = 0.0;
            for (std::int32_t i = 0; i < batch.item_count; ++i) {
                const BlockItem& item = block.item(batch.first_item + i);
                lengths_.push_back(item.tokens);
                all.add(batch.adapter, {item.tokens, item.squares, item.targets});
                const auto of_item = static_cast<double>(item.cost);
                cost += of_item;
                costliest = std::max(costliest, of_item);
            }
            Chain& chain = chains_[batch.adapter];
            chain.batches += 1.0;
            chain.costliest += costliest;
            chain.roots += std::sqrt(cost);
        }
        return all;
    }

    bool suffices(double nanoseconds) const {
        double microbatches = 0.0;
        for (const auto& [adapter, chain] : chains_) {
            const double left = nanoseconds - chain.batches * round_trip_;
            if (left <= 0.0) return false;
            microbatches += chain.roots * chain.roots / left;
        }
        microbatches = std::max(microbatches, static_cast<double>(least_));
        for (std::size_t s = 0; s < fixed_.size(); ++s) {
            if (nanoseconds < variable_[s] + microbatches * fixed_[s]) return false;
        }
        return true;
    }

    std::vector<std::int64_t> lengths_;
    std::int64_t least_ = 0;
    std::vector<double> fixed_;     ///< F(s)
    std::vector<double> variable_;  ///< V(s)
    double round_trip_ = 0.0;       ///< F
    std::map<AdapterId, Chain> chains_;
};

inline BlockBound block_bound(const PackRules& rules, const BlockItems& block) {
    return BlockBounds(rules, block).bound();
}

}  // namespace loratrain

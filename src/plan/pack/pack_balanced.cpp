#include "plan/pack/pack_balanced.h"

#include <algorithm>
#include <array>
#include <set>

#include "plan/milp.h"
#include "plan/pack/compare_packings.h"

namespace loratrain {

namespace {

constexpr std::array group_counts{1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr std::array capacity_shares{1.0, 1.15, 1.3, 1.5, 1.75, 2.0,  2.5,
                                     3.0, 3.75, 5.0, 7.0, 9.0,  12.0, 16.0};
constexpr std::array orders{BinOrder::falling, BinOrder::rising, BinOrder::peak};
constexpr std::array finer{0.88, 0.94, 0.97, 1.03, 1.06, 1.12};
constexpr std::size_t probed_samples = 512;  // of the rough comparison, at least
constexpr std::int32_t probed_rounds = 6;
constexpr std::size_t many_samples = 1024;  // that suffice in any number of rounds
constexpr std::size_t rough_stride = 3;
constexpr std::int32_t ordered_groups = 3;  // orders matter where the pipeline drains
constexpr std::size_t kept = 12;            // variants compared over the whole block
constexpr double near_best = 1.03;
constexpr double as_good = 1.003;
constexpr std::size_t steady_microbatches = 16;  // per stage
constexpr std::size_t few_stages = 8;            // beyond them twice is enough
constexpr int most_repeats = 4;

using Tried = TriedPacking;

std::int32_t most_batches_of_a_round(const BlockItems& block) {
    std::int32_t most = 1;
    std::int32_t count = 0;
    for (std::size_t b = 0; b < block.batches.size(); ++b) {
        count = b > 0 && block.batches[b].round == block.batches[b - 1].round ? count + 1 : 1;
        most = std::max(most, count);
    }
    return most;
}

/// Of a large round the first samples of every batch.
BlockItems first_rounds(const BlockItems& block) {
    BlockItems part;
    part.capacity = block.capacity;
    const std::int32_t most_of_a_batch =
        std::max(1, static_cast<std::int32_t>(many_samples) / most_batches_of_a_round(block));
    for (const BlockBatch& batch : block.batches) {
        const bool enough = part.items.size() >= many_samples ||
                            (part.items.size() >= probed_samples && part.rounds >= probed_rounds);
        if (batch.round >= part.rounds && enough) break;
        part.rounds = batch.round + 1;
        part.batches.push_back(batch);
        part.batches.back().first_item = static_cast<std::int32_t>(part.items.size());
        part.batches.back().item_count = std::min(batch.item_count, most_of_a_batch);
        for (std::int32_t i = 0; i < part.batches.back().item_count; ++i) {
            part.items.push_back(block.item(batch.first_item + i));
            part.cost += part.items.back().cost;
            part.tokens += part.items.back().tokens;
        }
    }
    return part;
}

class Search {
  public:
    Search(const PackRules& rules, const BlockItems& block) : rules_(rules), block_(block) {
        std::set<AdapterId> adapters;
        for (const BlockBatch& batch : block.batches) adapters.insert(batch.adapter);
        adapters_ = static_cast<std::int32_t>(adapters.size());
    }

    BalancedPacking run() {
        const BlockItems part = first_rounds(block_);
        std::vector<Tried> tried = variants(stride());
        const bool is_all = part.items.size() == block_.items.size();
        evaluate(part, is_all ? Relevance{1, relevant()} : Relevance{kept, 1.0}, tried);
        sort(tried);
        tried.resize(std::min(tried.size(), kept));
        if (!is_all) {
            if (!has_in_turn(tried)) tried.push_back(in_turn());
            evaluate(block_, {1, relevant()}, tried);
            sort(tried);
        }
        refine(tried);
        if (tries_fewest()) add_fewest(tried);
        return result(fewest_of_the_best(tried));
    }

  private:
    /// Of variants that are looked at; on many stages every other one.
    std::size_t stride() const {
        if (rules_.rough) return rough_stride;
        return rules_.stages.size() > many_stages ? 2 : 1;
    }

    bool tries_fewest() const { return rules_.packing != Packing::greedy && milp_available(); }
    /// Beyond this many times the best makespan nothing is looked at again.
    double relevant() const { return tries_fewest() ? near_best : as_good; }

    std::vector<std::int32_t> groups() const {
        std::vector<std::int32_t> counts;
        const auto stages = static_cast<std::int32_t>(rules_.stages.size());
        const std::int32_t most = std::min(adapters_, std::max(8, 2 * stages));
        for (const int count : group_counts) {
            if (count < most) counts.push_back(count);
        }
        counts.push_back(most);
        return counts;
    }

    /// Every `stride`-th number of groups and target; all orders with stride 1.
    std::vector<Tried> variants(std::size_t stride) const {
        std::vector<Tried> all{in_turn()};
        const double full = static_cast<double>(block_.cost) / static_cast<double>(block_.tokens) *
                            static_cast<double>(block_.capacity);
        const double least =
            static_cast<double>(block_.cost) / static_cast<double>(block_.items.size()) / 2.0;
        const std::vector<std::int32_t> counts = groups();
        for (std::size_t g = 0; g < counts.size(); g += stride) {
            const std::int32_t count = counts[g];
            all.push_back({{Filling::filled, count, 0}, {}, 0});
            std::int64_t before = 0;
            for (std::size_t c = 0; c < capacity_shares.size(); c += stride) {
                const double share = capacity_shares[c];
                if (share > 1.0 && full / share < least) break;
                const std::int64_t target = leveled(full / share);
                if (target == before) continue;
                before = target;
                for (const BinOrder order : orders) {
                    const bool matters = stride == 1 && count <= ordered_groups;
                    if (order != BinOrder::falling && !matters) break;
                    all.push_back({{Filling::evened, count, target, order}, {}, 0});
                }
                all.push_back({{Filling::streamed, count, target}, {}, 0});
            }
        }
        return all;
    }

    /// The same number of microbatches, but none left over.
    std::int64_t leveled(double target) const {
        const auto wanted = std::max<std::int64_t>(1, static_cast<std::int64_t>(target));
        const std::int64_t count = (block_.cost + wanted - 1) / wanted;
        return (block_.cost + count - 1) / count;
    }

    int repeats(const BlockItems& block) const {
        const std::size_t most = rules_.stages.size() * steady_microbatches;
        const double full = static_cast<double>(block.tokens) / static_cast<double>(block.capacity);
        const auto wanted = static_cast<int>(static_cast<double>(most) / std::max(1.0, full));
        return std::clamp(wanted, 1, rules_.stages.size() > few_stages ? 2 : most_repeats);
    }

    void evaluate(const BlockItems& block, const Relevance& relevance,
                  std::vector<Tried>& tried) const {
        compare_packings(rules_, block, repeats(block), relevance, tried);
    }

    static Tried in_turn() { return {{Filling::in_turn, 1, 0}, {}, 0}; }

    static bool has_in_turn(const std::vector<Tried>& tried) {
        return std::any_of(tried.begin(), tried.end(), [](const Tried& one) {
            return one.variant.filling == Filling::in_turn;
        });
    }

    static void sort(std::vector<Tried>& tried) {
        std::stable_sort(tried.begin(), tried.end(),
                         [](const Tried& a, const Tried& b) { return a.makespan < b.makespan; });
    }

    void refine(std::vector<Tried>& tried) const {
        const PackVariant best = tried.front().variant;
        if (best.target == 0) return;
        std::vector<Tried> around;
        for (const double factor : finer) {
            PackVariant variant = best;
            variant.target = leveled(static_cast<double>(best.target) * factor);
            around.push_back({variant, {}, 0});
        }
        evaluate(block_, {1, relevant()}, around);
        tried.insert(tried.end(), around.begin(), around.end());
    }

    void add_fewest(std::vector<Tried>& tried) const {
        std::int64_t best = tried.front().makespan;
        for (const Tried& one : tried) best = std::min(best, one.makespan);
        const std::size_t count = tried.size();
        for (std::size_t i = 0; i < count; ++i) {
            const double limit = near_best * static_cast<double>(best);
            const Tried& one = tried[i];
            if (one.variant.filling != Filling::filled) continue;
            if (static_cast<double>(one.makespan) > limit) continue;
            Tried milp{{Filling::fewest, one.variant.groups, 0}, {}, 0};
            milp.bins = pack_variant(rules_, block_, milp.variant);
            milp.makespan =
                pipeline_time(pipeline_load(rules_, block_, milp.bins, repeats(block_))).makespan;
            tried.push_back(std::move(milp));
        }
    }

    static Tried fewest_of_the_best(std::vector<Tried>& tried) {
        sort(tried);
        const double limit = as_good * static_cast<double>(tried.front().makespan);
        const auto end = std::find_if(tried.begin(), tried.end(), [&](const Tried& one) {
            return static_cast<double>(one.makespan) > limit;
        });
        return std::move(*std::min_element(tried.begin(), end, [](const auto& a, const auto& b) {
            return a.bins.size() < b.bins.size();
        }));
    }

    BalancedPacking result(Tried best) const {
        BalancedPacking packing;
        packing.variant = best.variant;
        packing.repeats = repeats(block_);
        packing.time = pipeline_time(pipeline_load(rules_, block_, best.bins, packing.repeats));
        packing.bins = std::move(best.bins);
        if (rules_.changes_per_item > 0 && !rules_.rough) improve(packing);
        return packing;
    }

    void improve(BalancedPacking& packing) const {
        const std::int64_t before = steady_time(rules_, block_, packing.bins);
        ImprovedPacking improved = improve_packing(rules_, block_, packing.bins);
        if (improved.nanoseconds >= before) return;
        packing.bins = std::move(improved.bins);
        packing.variant.filling = Filling::improved;
        packing.time = pipeline_time(pipeline_load(rules_, block_, packing.bins, packing.repeats));
    }

    const PackRules& rules_;
    const BlockItems& block_;
    std::int32_t adapters_ = 0;
};

}  // namespace

BalancedPacking pack_balanced_block(const PackRules& rules, const BlockItems& block) {
    if (block.items.empty()) return {};
    return Search(rules, block).run();
}

}  // namespace loratrain

#include "plan/pack/compare_packings.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/arithmetic.h"
#include "base/threads.h"
#include "plan/cost/cost_model.h"
#include "plan/timing/pipeline_time.h"

namespace loratrain {

namespace {

/// The largest makespan that may matter still.
class Limit {
  public:
    explicit Limit(const Relevance& relevance) : relevance_(relevance) {}

    std::int64_t most() const { return most_; }

    void add(std::int64_t makespan) {
        const std::scoped_lock lock(mutex_);
        smallest_.push_back(makespan);
        std::push_heap(smallest_.begin(), smallest_.end());
        if (smallest_.size() < relevance_.count) return;
        if (smallest_.size() > relevance_.count) {
            std::pop_heap(smallest_.begin(), smallest_.end());
            smallest_.pop_back();
        }
        const std::int64_t largest = smallest_.front();
        const double beyond = (relevance_.factor - 1.0) * static_cast<double>(largest);
        most_ = largest + static_cast<std::int64_t>(beyond) + (beyond > 0.0 ? 1 : 0);
    }

  private:
    Relevance relevance_;
    std::mutex mutex_;
    std::vector<std::int64_t> smallest_;  ///< relevance_.count of them, a heap
    std::atomic<std::int64_t> most_ = TriedPacking::too_long;
};

constexpr double most_before_merging = 1.15;
constexpr std::size_t most_merged = 4;
constexpr std::size_t packed_at_once = 8;
/// A streamed microbatch exceeds its target by 1/8 at most (pack_stream.cpp).
constexpr std::int64_t most_above_target = 8;

class Comparison {
  public:
    Comparison(const PackRules& rules, const BlockItems& block, int repeats,
               std::vector<TriedPacking>& tried)
        : rules_(rules),
          alone_(rules),
          block_(block),
          repeats_(repeats),
          tried_(tried),
          least_time_(rules, block) {
        alone_.threads = 1;
        slowest_ = alone_;
        slowest_.stages = {rules.stages[least_time_.slowest_stage()]};
    }

    void run(const Relevance& relevance) {
        loads_.resize(tried_.size());
        bounds_.resize(tried_.size());
        for (TriedPacking& one : tried_) {
            one.bins.clear();
            one.makespan = TriedPacking::too_long;
            auto [known, fresh] = portions_.try_emplace(one.variant.groups);
            if (fresh) known->second = portions(block_, one.variant.groups);
        }
        Limit limit(relevance);
        const std::vector<Run> runs = other_runs();
        for (std::size_t r = 0; r < runs.size() && runs[r].least <= limit.most();
             r += packed_at_once) {
            pack_some(std::span(runs).subspan(r, std::min(packed_at_once, runs.size() - r)), limit);
        }
        pack_filled_ones(limit.most());
        simulate_all(filled_ones(), limit);
    }

  private:
    /// Variants from `first` to before `last`, which differ in order alone.
    struct Run {
        std::size_t first = 0;
        std::size_t last = 0;
        std::int64_t least = 0;   ///< no makespan of them is below
        PortionCounts counts{};   ///< of evened ones
        std::size_t as_from = 0;  ///< first variant of the run that is packed as this one; its own
        bool repeats_another() const { return as_from != first; }
    };

    static bool differ_in_order_alone(const PackVariant& a, const PackVariant& b) {
        return a.filling == b.filling && a.groups == b.groups && a.target == b.target;
    }

    PipelineLoad load_of(std::size_t i) const {
        return pipeline_load(rules_, block_, tried_[i].bins, repeats_);
    }

    /// No makespan of what is packed is below.
    std::int64_t least(std::size_t i) const {
        return bounds_[i] ? bounds_[i]->makespan() : TriedPacking::too_long;
    }

    /// Before it is packed.
    Run run_of(std::size_t i) const {
        const PackVariant& variant = tried_[i].variant;
        Run run{i, i + 1, 0, {}, i};
        if (variant.target == 0) return run;
        const std::int64_t most_cost = variant.target + variant.target / most_above_target;
        std::int64_t bins = 0;
        if (variant.filling == Filling::evened) {
            run.counts = evened_counts(block_, portions_.at(variant.groups), variant.target);
            bins = std::accumulate(run.counts.begin(), run.counts.end(), bins);
        } else {
            bins = least_microbatches(block_, most_cost);
        }
        run.least = repeats_ * least_time_.in(bins);
        return run;
    }

    /// Evened microbatches depend on their number in each portion alone, which targets near each
    /// other share.
    void find_repeated(std::vector<Run>& runs) const {
        using Key = std::tuple<std::int32_t, std::vector<BinOrder>, PortionCounts>;
        std::map<Key, std::size_t> known;
        for (Run& run : runs) {
            const PackVariant& variant = tried_[run.first].variant;
            if (variant.filling != Filling::evened) continue;
            std::vector<BinOrder> orders;
            for (std::size_t i = run.first; i < run.last; ++i) {
                orders.push_back(tried_[i].variant.order);
            }
            const Key key{variant.groups, std::move(orders), run.counts};
            run.as_from = known.try_emplace(key, run.first).first->second;
        }
    }

    bool is_filled(std::size_t i) const { return tried_[i].variant.filling == Filling::filled; }

    std::vector<std::size_t> filled_ones() const {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < tried_.size(); ++i) {
            if (is_filled(i)) chosen.push_back(i);
        }
        return chosen;
    }

    void simulate_all(std::vector<std::size_t> order, Limit& limit) {
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return least(a) < least(b); });
        parallel_for(order.size(), rules_.threads,
                     [&](std::size_t i) { simulate(order[i], limit); });
    }

    /// Those that may be the fastest first.
    std::vector<Run> other_runs() const {
        std::vector<Run> runs;
        for (std::size_t i = 0; i < tried_.size(); ++i) {
            const PackVariant& variant = tried_[i].variant;
            if (is_filled(i)) continue;
            if (i > 0 && differ_in_order_alone(variant, tried_[i - 1].variant)) {
                runs.back().last = i + 1;
            } else {
                runs.push_back(run_of(i));
            }
        }
        find_repeated(runs);
        std::stable_sort(runs.begin(), runs.end(),
                         [](const Run& a, const Run& b) { return a.least < b.least; });
        return runs;
    }

    void pack_some(std::span<const Run> runs, Limit& limit) {
        parallel_for(runs.size(), rules_.threads, [&](std::size_t r) {
            const bool is_new = !runs[r].repeats_another();
            if (is_new && runs[r].least <= limit.most()) pack_run(runs[r], limit.most());
        });
        std::vector<std::size_t> packed;
        for (const Run& run : runs) {
            for (std::size_t i = run.first; i < run.last && !run.repeats_another(); ++i) {
                packed.push_back(i);
            }
        }
        simulate_all(std::move(packed), limit);
        for (const Run& run : runs) {
            if (run.repeats_another()) repeat(run, limit);
        }
    }

    /// Of equally good runs the earlier comes first: what this one repeats has been simulated, if
    /// it was worth that.
    void repeat(const Run& run, Limit& limit) {
        for (std::size_t i = run.first; i < run.last; ++i) {
            const TriedPacking& other = tried_[run.as_from + i - run.first];
            if (other.makespan == TriedPacking::too_long) continue;
            tried_[i].bins = other.bins;
            tried_[i].makespan = other.makespan;
            limit.add(other.makespan);
        }
    }

    /// Merging simulates again and again: not of what is far behind without it.
    void pack_filled_ones(std::int64_t limit) {
        const std::vector<std::size_t> filled = filled_ones();
        const bool any = limit == TriedPacking::too_long;
        const std::int64_t most =
            any ? limit
                : static_cast<std::int64_t>(most_before_merging * static_cast<double>(limit));
        std::vector<std::vector<Bins>> packed(filled.size());
        std::vector<std::int64_t> times(filled.size(), TriedPacking::too_long);
        parallel_for(filled.size(), rules_.threads, [&](std::size_t f) {
            TriedPacking& one = tried_[filled[f]];
            packed[f] = pack_filled(block_, portions_.at(one.variant.groups), alone_, false);
            one.bins = concatenate(packed[f]);
            const PipelineLoad load = load_of(filled[f]);
            const auto time = pipeline_time_within(load, pipeline_bound(load), most);
            if (time) times[f] = time->makespan;
        });
        std::vector<std::size_t> fastest;
        for (std::size_t f = 0; f < filled.size(); ++f) {
            if (times[f] != TriedPacking::too_long) fastest.push_back(f);
        }
        std::stable_sort(fastest.begin(), fastest.end(),
                         [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
        if (rules_.stages.size() > many_stages && fastest.size() > most_merged) {
            fastest.resize(most_merged);
        }
        parallel_for(fastest.size(), rules_.threads, [&](std::size_t i) {
            const std::size_t f = filled[fastest[i]];
            tried_[f].bins = merge_portions(rules_, block_, packed[fastest[i]]).bins;
            loads_[f] = load_of(f);
            bounds_[f] = pipeline_bound(loads_[f]);
        });
    }

    /// And bounds what may take no longer than `most`.
    void pack_run(const Run& run, std::int64_t most) {
        const PackVariant& variant = tried_[run.first].variant;
        const std::vector<Portion>& parts = portions_.at(variant.groups);
        if (variant.filling == Filling::evened) {
            std::vector<Bins> evened = pack_evened(block_, parts, run.counts);
            for (std::size_t i = run.first; i + 1 < run.last; ++i) {
                tried_[i].bins = concatenate(evened, tried_[i].variant.order);
            }
            TriedPacking& last = tried_[run.last - 1];
            last.bins = concatenate(std::move(evened), last.variant.order);
        } else {
            for (std::size_t i = run.first; i < run.last; ++i) {
                tried_[i].bins = pack_variant(alone_, block_, parts, variant);
            }
        }
        for (std::size_t i = run.first; i < run.last; ++i) {
            const Bins& bins = tried_[i].bins;
            if (repeats_ * least_time_.in(std::ssize(bins)) > most || is_longer(bins, most))
                continue;
            PipelineLoad times = times_of(rules_, block_, bins);
            if (least_work(times, repeats_) > most) continue;
            loads_[i] = repeated(std::move(times), block_, bins, repeats_);
            bounds_[i] = pipeline_bound(loads_[i]);
        }
    }

    /// By what one stage computes: what the others do is asked of few packings then.
    bool is_longer(const Bins& bins, std::int64_t most) const {
        if (rules_.stages.size() == 1 || most == TriedPacking::too_long) return false;
        return least_work(times_of(slowest_, block_, bins), repeats_) > most;
    }

    void simulate(std::size_t i, Limit& limit) {
        const PipelineLoad load = std::exchange(loads_[i], {});
        if (!bounds_[i] || least(i) > limit.most()) return;
        const auto time = pipeline_time_within(load, *bounds_[i], limit.most());
        if (!time) return;
        tried_[i].makespan = time->makespan;
        limit.add(time->makespan);
    }

    const PackRules& rules_;
    PackRules alone_;    ///< of one thread
    PackRules slowest_;  ///< of the stage that computes the most alone
    const BlockItems& block_;
    int repeats_;
    std::vector<TriedPacking>& tried_;
    LeastTime least_time_;
    std::map<std::int32_t, std::vector<Portion>> portions_;  ///< by the number of groups
    std::vector<PipelineLoad> loads_;                   ///< of what is packed and not simulated yet
    std::vector<std::optional<PipelineBound>> bounds_;  ///< none: it is too long
};

}  // namespace

void compare_packings(const PackRules& rules, const BlockItems& block, int repeats,
                      const Relevance& relevance, std::vector<TriedPacking>& tried) {
    Comparison(rules, block, repeats, tried).run(relevance);
}

namespace {

constexpr double nanoseconds_of_a_second = 1e9;
constexpr double rounded_by = 1.0;  // nanoseconds, of a microbatch's times

/// What the device computes, as if nothing ever kept it waiting.
CostModel undisturbed(CostModel costs) {
    costs.host = {};
    costs.layer_transfer = 0.0;
    costs.offload_per_token = 0.0;
    return costs;
}

CostModel of_rows_alone(CostModel costs) {
    for (CostLine* line : {&costs.layer_forward, &costs.layer_backward, &costs.head}) {
        line->fixed = line->per_segment = 0.0;
    }
    costs.layer_traffic = 0.0;
    return costs;
}

AdapterLoads all_rows(const BlockItems& block) {
    AdapterLoads loads;
    for (const BlockItem& item : block.items) {
        loads.add(block.batch(item.batch).adapter, {item.tokens, item.squares, item.targets});
    }
    return loads;
}

}  // namespace

LeastTime::LeastTime(const PackRules& rules, const BlockItems& block) {
    const CostModel costs = undisturbed(rules.costs);
    const CostModel of_rows = of_rows_alone(costs);
    const AdapterLoads rows = all_rows(block);
    for (const StagePlan& stage : rules.stages) {
        stages_.push_back(
            {nanoseconds_of_a_second * stage_seconds(of_rows, stage, rows, rules.recompute),
             nanoseconds_of_a_second *
                 stage_seconds(costs, stage, AdapterLoads(), rules.recompute)});
    }
}

std::size_t LeastTime::slowest_stage() const {
    const auto slowest = std::ranges::max_element(stages_, {}, &Stage::rows);
    return static_cast<std::size_t>(slowest - stages_.begin());
}

std::int64_t LeastTime::in(std::int64_t bins) const {
    double most = 0.0;
    for (const Stage& stage : stages_) {
        most = std::max(most, stage.rows + static_cast<double>(bins) * (stage.fixed - rounded_by));
    }
    constexpr double summed_otherwise = 1.0 - 1e-9;
    return static_cast<std::int64_t>(std::floor(most * summed_otherwise));
}

std::int64_t least_microbatches(const BlockItems& block, std::int64_t most_cost) {
    std::int64_t largest = std::max<std::int64_t>(1, most_cost);
    for (const BlockItem& item : block.items) largest = std::max(largest, item.cost);
    return ceil_div(block.cost, largest);
}

}  // namespace loratrain

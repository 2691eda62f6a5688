#include "plan/deploy/partition_layers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/arithmetic.h"
#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/stage_layers.h"

namespace loratrain {

namespace {

std::vector<StagePlan> split_layers(std::int32_t layers, std::int32_t stages,
                                    std::int32_t last_layers) {
    std::vector<StagePlan> result(static_cast<std::size_t>(stages));
    const std::int32_t others = stages - 1;
    std::int32_t first = 0;
    for (std::int32_t s = 0; s < stages; ++s) {
        StagePlan& stage = result[static_cast<std::size_t>(s)];
        const std::int32_t shared = layers - last_layers;
        stage.rank = s;
        stage.first_layer = first;
        stage.layer_count =
            s == others ? last_layers : shared / others + (s < shared % others ? 1 : 0);
        stage.has_embedding = s == 0;
        stage.has_head = s == others;
        first += stage.layer_count;
    }
    return result;
}

/// (largest time, spread of the times)
std::pair<double, double> badness(const std::vector<StagePlan>& stages, const CostModel& costs,
                                  const MicrobatchLoad& load, Recompute recompute) {
    double most = 0.0;
    double least = 0.0;
    for (const StagePlan& stage : stages) {
        const double seconds = stage_seconds(costs, stage, load, recompute);
        most = std::max(most, seconds);
        least = stage.rank == 0 ? seconds : std::min(least, seconds);
    }
    return {most, most - least};
}

constexpr int most_shares = 8;      ///< ways to divide a layer, per direction
constexpr std::int32_t window = 2;  ///< layers around the even split that are looked at

/// Where a stage ends: before `layer`, but for the adapters of `below`, computed in it as well.
struct Cut {
    std::int32_t layer = 0;
    AdapterSpan below = {0, 0};
    bool shares() const { return below.end > below.begin; }
    AdapterSpan above() const {
        return below.begin > 0 ? AdapterSpan{0, below.begin} : AdapterSpan{below.end};
    }
};

/// Numbers of adapters that divide the rows of a microbatch about evenly.
std::vector<std::int32_t> dividers(const AdapterLoads& loads) {
    std::vector<AdapterLoads::Part> parts = loads.parts;
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.adapter < b.adapter; });
    std::vector<std::int32_t> numbers;
    double rows = 0.0;
    double next = 0.0;
    for (std::size_t i = 1; i < parts.size(); ++i) {
        rows += static_cast<double>(parts[i - 1].load.tokens);
        const bool few = parts.size() <= most_shares;
        if (!few && rows < next) continue;
        next = rows + static_cast<double>(loads.total.tokens) / most_shares;
        numbers.push_back(number(parts[i].adapter));
    }
    return numbers;
}

class Sharing {
  public:
    Sharing(const std::vector<StagePlan>& whole, const CostModel& costs, const AdapterLoads& loads,
            Recompute recompute)
        : whole_(whole),
          costs_(costs),
          loads_(loads),
          recompute_(recompute),
          dividers_(dividers(loads)),
          layers_(whole.back().first_layer + whole.back().layer_count) {}

    /// Dynamic programming over the cuts, the first stage first.
    std::vector<StagePlan> run() const {
        const double even = even_layers();
        std::vector<std::vector<Cut>> cuts{{Cut{}}};
        std::vector<std::vector<Step>> steps{{Step{}}};
        for (std::size_t s = 0; s < whole_.size(); ++s) {
            cuts.push_back(s + 1 == whole_.size() ? std::vector<Cut>{{layers_}}
                                                  : cuts_after(s, even));
            std::vector<Step>& reached = steps.emplace_back();
            for (const Cut& end : cuts[s + 1]) reached.push_back(best(s, cuts[s], steps[s], end));
        }
        std::vector<StagePlan> stages(whole_.size());
        std::size_t at = 0;
        for (std::size_t s = whole_.size(); s-- > 0;) {
            const std::size_t from = steps[s + 1][at].from;
            stages[s] = stage(s, cuts[s][from], cuts[s + 1][at]);
            at = from;
        }
        return stages;
    }

  private:
    /// The best way to a cut: the cut before it, the slowest stage's seconds, and their squares.
    struct Step {
        std::size_t from = 0;
        double most = 0.0;
        double squares = 0.0;
    };

    double seconds(const StagePlan& stage) const {
        return stage_seconds(costs_, stage, loads_, recompute_);
    }

    StagePlan stage(std::size_t s, const Cut& begin, const Cut& end) const {
        StagePlan stage = whole_[s];
        stage.first_layer = begin.layer;
        stage.layer_count = end.layer - begin.layer + (end.shares() ? 1 : 0);
        if (begin.shares()) stage.first_layer_adapters = begin.above();
        if (end.shares()) stage.last_layer_adapters = end.below;
        return stage;
    }

    /// Of a stage, if all took the same time.
    double even_layers() const {
        double all = 0.0;
        for (const StagePlan& stage : whole_) all += seconds(stage);
        StagePlan one_layer;
        one_layer.layer_count = 1;
        return all / static_cast<double>(whole_.size()) / seconds(one_layer);
    }

    /// Those near where all stages would take the same time.
    std::vector<Cut> cuts_after(std::size_t s, double even) const {
        const auto middle = static_cast<std::int32_t>(even * static_cast<double>(s + 1));
        std::vector<Cut> cuts;
        for (std::int32_t l = middle - window; l <= middle + window; ++l) {
            if (l < 1 || l >= layers_) continue;
            cuts.push_back({l});
            for (const std::int32_t number : dividers_) {
                cuts.push_back({l, {0, number}});
                cuts.push_back({l, {number}});
            }
        }
        const StagePlan& next = whole_[s + 1];
        cuts.push_back({next.first_layer});
        return cuts;
    }

    Step best(std::size_t s, const std::vector<Cut>& begins, const std::vector<Step>& reached,
              const Cut& end) const {
        Step best;
        best.most = std::numeric_limits<double>::infinity();
        for (std::size_t b = 0; b < begins.size(); ++b) {
            if (reached[b].most > best.most) continue;
            const StagePlan candidate = stage(s, begins[b], end);
            if (whole_layers(candidate) < 1) continue;
            const double here = seconds(candidate);
            const Step step{b, std::max(reached[b].most, here), reached[b].squares + here * here};
            if (std::pair(step.most, step.squares) < std::pair(best.most, best.squares)) {
                best = step;
            }
        }
        return best;
    }

    const std::vector<StagePlan>& whole_;
    const CostModel& costs_;
    const AdapterLoads& loads_;
    Recompute recompute_;
    std::vector<std::int32_t> dividers_;
    std::int32_t layers_;
};

std::vector<StagePlan> split_by(const CostModel& costs, std::int32_t layers, std::int32_t stages,
                                const AdapterLoads& loads, Recompute recompute) {
    return share_layers(partition_layers(layers, stages, costs, loads.total, recompute), costs,
                        loads, recompute);
}

/// Memory grows with the layers. 0 = not even one fits.
std::int32_t most_layers(const Job& job, const ReplicaView& view, std::size_t stage) {
    ReplicaPlan trial = view.replica;
    const std::int64_t first = trial.stages[stage].first_layer;
    const auto fits = [&](std::int64_t layers) {
        // So many behind its first may be more than there are.
        trial.stages[stage].first_layer =
            static_cast<std::int32_t>(std::min(first, view.lane_model.layers - layers));
        trial.stages[stage].layer_count = static_cast<std::int32_t>(layers);
        return stage_memory(job, view.with(trial), stage).total() <= view.plan.bytes_per_rank;
    };
    return static_cast<std::int32_t>(last_that_holds(0, view.lane_model.layers + 1, fits));
}

}  // namespace

std::vector<StagePlan> partition_layers(std::int32_t layers, std::int32_t stages,
                                        const CostModel& costs, const MicrobatchLoad& load,
                                        Recompute recompute) {
    if (stages == 1) return split_layers(layers, 1, layers);
    std::vector<StagePlan> best = split_layers(layers, stages, 1);
    for (std::int32_t last = 2; last <= layers - (stages - 1); ++last) {
        std::vector<StagePlan> candidate = split_layers(layers, stages, last);
        if (badness(candidate, costs, load, recompute) < badness(best, costs, load, recompute)) {
            best = std::move(candidate);
        }
    }
    return best;
}

std::vector<StagePlan> share_layers(const std::vector<StagePlan>& whole, const CostModel& costs,
                                    const AdapterLoads& loads, Recompute recompute) {
    if (whole.size() < 2 || loads.parts.size() < 2) return whole;
    std::vector<StagePlan> shared = Sharing(whole, costs, loads, recompute).run();
    const bool gains = slowest_seconds(costs, shared, loads, recompute) <
                       (1.0 - sharing_gain) * slowest_seconds(costs, whole, loads, recompute);
    return gains ? shared : whole;
}

std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const AdapterLoads& loads, Recompute recompute) {
    std::vector<StagePlan> kept = split_by(usual, layers, stages, loads, recompute);
    if (measured == usual) return kept;
    std::vector<StagePlan> fastest = split_by(measured, layers, stages, loads, recompute);
    const bool gains = slowest_seconds(measured, fastest, loads, recompute) <
                       (1.0 - split_gain) * slowest_seconds(measured, kept, loads, recompute);
    return gains ? fastest : kept;
}

std::vector<StagePlan> fit_layers(const Job& job, const ReplicaView& view, std::int64_t tokens,
                                  Recompute recompute) {
    ReplicaPlan trial = view.replica;
    trial.microbatch_tokens = tokens;
    trial.recompute = recompute;
    std::vector<StagePlan> stages = view.replica.stages;
    std::vector<std::int32_t> room;
    std::int32_t surplus = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const std::int32_t most = most_layers(job, view.with(trial), s);
        if (most == 0) return {};
        const std::int32_t moved = std::max(0, stages[s].layer_count - most);
        stages[s].layer_count -= moved;
        surplus += moved;
        room.push_back(most - stages[s].layer_count);
    }
    for (std::int32_t given = 0; surplus > 0; ++given) {
        bool any = false;
        for (std::size_t s = 0; s < stages.size() && surplus > 0; ++s) {
            if (room[s] <= given) continue;
            ++stages[s].layer_count;
            --surplus;
            any = true;
        }
        if (!any) return {};
    }
    std::int32_t first = 0;
    for (StagePlan& stage : stages) {
        stage.first_layer = first;
        first += stage.layer_count;
    }
    return stages;
}

}  // namespace loratrain

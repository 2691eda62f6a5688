#include "plan/deploy/choose_deployment.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "plan/deploy/choose_split.h"
#include "plan/deploy/fit_layers.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/search_layout.h"
#include "plan/schedule/admission.h"

namespace loratrain {

namespace {

/// Of the wanted microbatch, below which fewer adapters at once are the better choice.
constexpr std::int64_t crowded_share = 8;

/// What a smaller microbatch has to gain by the depth that it leaves room for, how far behind it
/// may be without, and how many of them are played in their depths.
constexpr double least_gain_of_depth = 0.02;
constexpr double most_behind = 0.15;
constexpr std::size_t most_sizes_in_depth = 2;

/// The job with the sizes of the former run where it leaves them open, as long as they may fit.
Job sized_as(const Job& job, const Workload& work, const ReplicaPlan* former) {
    Job sized = job;
    if (former == nullptr) return sized;
    if (!job.parallel.microbatch_tokens && former->microbatch_tokens >= work.longest_sample) {
        sized.parallel.microbatch_tokens = former->microbatch_tokens;
    }
    if (job.parallel.recompute == Recompute::automatic) {
        sized.parallel.recompute = former->recompute;
    }
    return sized;
}

std::vector<StagePlan> split_of(const DeploymentInputs& in, std::int32_t stages,
                                const AdapterLoads& loads, Recompute recompute) {
    return as_job_says(choose_split(static_cast<std::int32_t>(in.constants.model.layers), stages,
                                    in.built_in, in.constants.costs, loads, recompute),
                       in.job);
}

class Chooser {
  public:
    explicit Chooser(const DeploymentInputs& inputs)
        : in_(inputs),
          job_(inputs.job),
          sized_job_(sized_as(inputs.job, inputs.work, inputs.former)),
          order_(admission_order(job_, std::vector<AdapterClaim>(job_.adapters.size()))) {
        const ReplicaPlan* former = inputs.former;
        if (former != nullptr && former->tensor == in_.tensor &&
            std::ssize(former->stages) == in_.stages) {
            alike_ = former;
        }
    }

    Deployment run() const {
        const Attempt first = admitted();
        const auto [sized, trials] = with_searched_size(first);
        return with_room_for_depth(sized, {in_depth(sized), trials});
    }

  private:
    using Adapters = std::vector<AdapterId>;
    /// What becomes of a deployment with these adapters.
    using LayOut = std::function<Candidate(const Adapters&)>;

    struct Attempt {
        Candidate candidate;
        const Job* sizes = nullptr;  ///< the job that it has its sizes from
        bool fits = false;
    };

    bool fits(const Candidate& candidate) const {
        const Plan plan = plan_with(in_.constants, candidate);
        return fits_memory(job_, only_replica(plan), candidate.replica.microbatch_tokens,
                           candidate.replica.recompute);
    }

    /// On the first ranks: which hosts lanes are on counts.
    std::vector<StagePlan> split(const AdapterLoads& loads, Recompute recompute) const {
        std::vector<StagePlan> stages = split_of(in_, in_.stages, loads, recompute);
        for (StagePlan& stage : stages) stage.rank *= in_.tensor;
        return stages;
    }

    std::vector<StagePlan> former_stages() const { return as_job_says(alike_->stages, job_); }

    /// Whole layers, by cost.
    Candidate of_whole_layers(Recompute recompute, const Adapters& adapters) const {
        return of_stages(split(in_.work.usual.total, recompute), adapters);
    }

    Candidate of_stages(std::vector<StagePlan> stages, const Adapters& adapters) const {
        Candidate candidate;
        candidate.replica.tensor = in_.tensor;
        candidate.replica.stages = std::move(stages);
        candidate.replica.max_in_flight = in_.stages;
        candidate.replica.pad_columns = in_.pad_columns;
        candidate.replica.saved_columns = in_.saved_columns;
        candidate.first_admitted = adapters;
        return candidate;
    }

    /// The same with the microbatches that fit.
    Candidate sized(const Job& sizes, Candidate candidate) const {
        const Plan plan = plan_with(in_.constants, candidate);
        const ReplicaView view = only_replica(plan);
        const MicrobatchChoice choice =
            choose_microbatch(sizes, view, fitting_tokens(job_, view, in_.work.longest_sample),
                              in_.work.wanted_tokens(), in_.work.longest_sample);
        candidate.replica.microbatch_tokens = choice.tokens;
        candidate.replica.recompute = choice.recompute;
        const bool found = choice.recompute == Recompute::layer && keeps_what_fits(job_.parallel);
        if (found && in_.stages == 1 && !sizes.parallel.microbatch_tokens) {
            candidate.replica.microbatch_tokens =
                fastest_recomputing(job_, view, in_.built_in, in_.work.usual.total,
                                    in_.work.longest_sample, choice.tokens);
        }
        return candidate;
    }

    /// Recomputation makes layers cost more, so they are split anew when it turns out necessary.
    Candidate by_cost(const Job& sizes, const Adapters& adapters) const {
        const Recompute asked = job_.parallel.recompute;
        const Recompute assumed = asked == Recompute::layer ? asked : Recompute::none;
        const Candidate first = sized(sizes, of_whole_layers(assumed, adapters));
        if (asked != Recompute::automatic || first.replica.recompute != Recompute::layer) {
            return first;
        }
        return sized(sizes, of_whole_layers(Recompute::layer, adapters));
    }

    /// The last resort: the split that costs least does not fit even beside one adapter.
    Candidate by_memory(Recompute recompute, const Adapters& adapters) const {
        Candidate candidate = of_whole_layers(recompute, adapters);
        const Plan plan = plan_with(in_.constants, candidate);
        const std::int64_t tokens =
            job_.parallel.microbatch_tokens.value_or(in_.work.longest_sample);
        std::vector<StagePlan> stages = fit_layers(job_, only_replica(plan), tokens, recompute);
        if (!stages.empty()) candidate.replica.stages = std::move(stages);
        return sized(job_, std::move(candidate));
    }

    bool has_fair_size(const Job& sizes, const Candidate& candidate) const {
        return sizes.parallel.microbatch_tokens ||
               candidate.replica.microbatch_tokens >= in_.work.wanted_tokens() / crowded_share;
    }

    /// All that may train at once, or when they do not fit as many of the first as do: if possible
    /// beside microbatches of a fair size.
    Attempt admit_most(const Job& sizes, const LayOut& lay_out) const {
        const std::size_t all = std::min(order_.size(), most_admitted(job_));
        Attempt attempt{{}, &sizes, false};
        for (const bool with_fair_size : {true, false}) {
            for (std::size_t count = all; count > 0; --count) {
                attempt.candidate = lay_out(first_of_order(count));
                const bool fair =
                    count == all || !with_fair_size || has_fair_size(sizes, attempt.candidate);
                attempt.fits = fair && fits(attempt.candidate);
                if (attempt.fits) return attempt;
            }
        }
        return attempt;
    }

    Adapters first_of_order(std::size_t count) const {
        return {order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count)};
    }

    /// The first way of laying out with which something fits.
    Attempt admitted() const {
        std::vector<std::pair<const Job*, LayOut>> ways;
        const auto add = [&](const Job& sizes, LayOut lay_out) {
            ways.emplace_back(&sizes, std::move(lay_out));
        };
        add(sized_job_, [this](const Adapters& a) { return by_cost(sized_job_, a); });
        if (alike_ != nullptr) {
            add(sized_job_, [this](const Adapters& a) {
                return sized(sized_job_, of_stages(former_stages(), a));
            });
        }
        if (in_.former != nullptr) {
            add(job_, [this](const Adapters& a) { return by_cost(job_, a); });
        }
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            if (!may_use(job_, recompute)) continue;
            add(job_, [this, recompute](const Adapters& a) { return by_memory(recompute, a); });
        }
        Attempt attempt;
        for (const auto& [sizes, lay_out] : ways) {
            attempt = admit_most(*sizes, lay_out);
            if (attempt.fits) break;
        }
        return attempt;
    }

    /// Where sizes are free.
    std::pair<Candidate, std::vector<LayoutTrial>> with_searched_size(const Attempt& first) const {
        Candidate candidate = first.candidate;
        if (first.sizes->parallel.microbatch_tokens || !first.fits) return {candidate, {}};
        std::vector<LayoutTrial> trials =
            search_layout(job_, plan_with(in_.constants, candidate), in_.datasets, in_.built_in,
                          in_.work.wanted_tokens(), in_.work.longest_sample);
        if (trials.empty()) return {candidate, trials};
        candidate.replica.microbatch_tokens = trials.front().microbatch_tokens;
        candidate.first_admitted =
            first_of_order(static_cast<std::size_t>(trials.front().adapters));
        return {candidate, trials};
    }

    /// Where every adapter trains from the start: with some waiting, which ones load a stage would
    /// change as they end. A run that is continued keeps its stages.
    Candidate with_shared_layers(const Candidate& whole) const {
        Candidate other = whole;
        if (alike_ != nullptr) {
            other.replica.stages = former_stages();
            if (fits(other)) return other;
        }
        if (whole.first_admitted.size() < job_.adapters.size()) return whole;
        other.replica.stages = split(in_.work.usual, whole.replica.recompute);
        return fits(other) ? other : whole;
    }

    /// Sequential and 1F1B are defined by as many microbatches in flight as stages.
    bool has_free_depth() const {
        const SchedulePolicy policy = job_.schedule.policy;
        return policy == SchedulePolicy::balanced || policy == SchedulePolicy::mlora;
    }

    Candidate with_searched_depth(const Candidate& usual) const {
        if (!has_free_depth() || !fits(usual)) return usual;
        Candidate other = usual;
        if (alike_ != nullptr && alike_->max_in_flight >= in_.stages) {
            other.replica.max_in_flight = alike_->max_in_flight;
            if (fits(other)) return other;
        }
        other.replica.max_in_flight =
            search_depth(job_, plan_with(in_.constants, usual), in_.datasets, in_.built_in);
        return other;
    }

    Candidate in_depth(const Candidate& sized) const {
        return with_searched_depth(with_shared_layers(sized));
    }

    double speed_of(const Candidate& candidate) const {
        return played_speed(job_, plan_with(in_.constants, candidate), in_.datasets, in_.built_in);
    }

    bool is_held_by_memory(const Candidate& candidate) const {
        Candidate deeper = candidate;
        deeper.replica.max_in_flight += depths_apart(in_.stages);
        return deeper.replica.max_in_flight <= 2 * in_.stages && !fits(deeper);
    }

    /// Beside as many adapters, the fastest first.
    static std::vector<LayoutTrial> smaller_sizes(const std::vector<LayoutTrial>& trials) {
        const LayoutTrial& taken = trials.front();
        std::vector<LayoutTrial> sizes;
        std::copy_if(
            trials.begin(), trials.end(), std::back_inserter(sizes), [&](const LayoutTrial& trial) {
                return trial.microbatch_tokens < taken.microbatch_tokens &&
                       trial.adapters == taken.adapters &&
                       trial.tokens_per_second >= (1.0 - most_behind) * taken.tokens_per_second;
            });
        std::stable_sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) {
            return a.tokens_per_second > b.tokens_per_second;
        });
        if (sizes.size() > most_sizes_in_depth) sizes.resize(most_sizes_in_depth);
        return sizes;
    }

    /// Sizes are searched with as many microbatches in flight as stages. Where memory keeps those
    /// of the size that was taken from more, smaller ones are compared with the depths that they
    /// have.
    Deployment with_room_for_depth(const Candidate& sized, Deployment taken) const {
        if (taken.trials.empty() || !has_free_depth() || !is_held_by_memory(taken.chosen)) {
            return taken;
        }
        const std::vector<LayoutTrial> smaller = smaller_sizes(taken.trials);
        if (smaller.empty()) return taken;
        const double speed = taken.trials.front().tokens_per_second = speed_of(taken.chosen);
        std::optional<std::pair<Candidate, LayoutTrial>> best;
        for (LayoutTrial trial : smaller) {
            Candidate other = sized;
            other.replica.microbatch_tokens = trial.microbatch_tokens;
            other = in_depth(other);
            trial.tokens_per_second = speed_of(other);
            const double wanted =
                best ? best->second.tokens_per_second : (1.0 + least_gain_of_depth) * speed;
            if (trial.tokens_per_second > wanted) best = {other, trial};
        }
        if (!best) return taken;
        std::erase_if(taken.trials, [&](const LayoutTrial& trial) {
            return trial.microbatch_tokens == best->second.microbatch_tokens;
        });
        taken.trials.insert(taken.trials.begin(), best->second);
        return {best->first, taken.trials};
    }

    const DeploymentInputs& in_;
    const Job& job_;
    Job sized_job_;
    std::vector<AdapterId> order_;        ///< in which they get to train
    const ReplicaPlan* alike_ = nullptr;  ///< the former one, where it has as many stages and lanes
};

}  // namespace

Plan plan_with(const Plan& constants, const Candidate& candidate) {
    Plan plan = constants;
    plan.replicas = {candidate.replica};
    plan.first_admitted = candidate.first_admitted;
    return plan;
}

LayerSplit layer_split(const DeploymentInputs& inputs) {
    return [&inputs](std::int32_t stages, Recompute recompute) {
        return split_of(inputs, stages, inputs.work.usual.total, recompute);
    };
}

Deployment choose_deployment(const DeploymentInputs& inputs) {
    return Chooser(inputs).run();
}

}  // namespace loratrain

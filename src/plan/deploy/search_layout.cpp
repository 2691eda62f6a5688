#include "plan/deploy/search_layout.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/arithmetic.h"
#include "plan/cost/cost_model.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/layout_player.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission_rules.h"

namespace loratrain {

namespace {

constexpr std::int64_t fewest_tokens_cuda = 2048;
constexpr std::int64_t fewest_tokens_cpu = 512;
constexpr std::int64_t coarse_parts = 8;  ///< of the usual size, that are looked at first
constexpr std::int64_t finest_parts = 64;
constexpr std::size_t refined = 2;    ///< sizes around which finer parts are looked at
constexpr std::size_t finalists = 8;  ///< that recompute, and that do not
constexpr std::size_t finalists_of_large = 2;
constexpr std::size_t climbing = 4;       ///< finalists beside which sizes are looked at
constexpr std::size_t most_climbed = 12;  ///< such sizes
constexpr std::size_t deepened = 8;       ///< sizes on the CPU whose depths are looked at
/// Samples of a prediction's first rounds times stages, up to which finalists are predicted.
constexpr std::int64_t most_predicted = 1 << 14;
constexpr std::int64_t most_predicted_closely = 1 << 13;  ///< and more of them
/// What is played is that much slower or faster than what is predicted.
constexpr double near_enough = 0.94;
/// Microbatches of a whole job are not quite what is usual at its start.
constexpr double most_spare = 0.05;
constexpr double least_gain_cpu = 0.02;
constexpr double depth_tolerance = 0.01;
constexpr std::int32_t spare_part = 2;
constexpr std::int32_t spare_depths_cuda = 2;
constexpr std::int32_t spare_depths_cpu = 4;  // what a computation takes varies by 15%
constexpr std::int32_t most_depths = 16;

class LayoutSearch {
  public:
    LayoutSearch(const DeploymentInputs& inputs, const Candidates& candidates)
        : in_(inputs),
          job_(inputs.job),
          candidates_(candidates),
          player_(inputs.job, inputs.datasets, inputs.built_in) {}

    FoundLayout run(const Candidate& first) {
        cuda_ = in_.constants.backend == BackendKind::cuda;
        first_ = first;
        predicts_ = cuda_ && is_predicted_within(most_predicted, first);
        closely_ = cuda_ && is_predicted_within(most_predicted_closely, first);
        const bool has_long_blocks =
            in_.stages > 1 && job_.schedule.policy == SchedulePolicy::balanced;
        if (predicts_ && has_long_blocks) player_.play_one_block();
        finalists_ = predicts_ ? finalists : finalists_of_large;
        usual_ = std::max(in_.work.wanted_tokens(), in_.work.longest_sample);
        if (has_no_choice(first)) return {laid_out(first), {}};
        for (const std::int64_t size : coarse_sizes(first)) add(size);
        if (falls_behind()) return {in_depth(layouts_.front().candidate), {}, true};
        for (std::int64_t parts = 2 * coarse_parts; parts <= finest_parts && cuda_ && !is_given();
             parts *= 2) {
            play_worthwhile();
            for (const std::int64_t size : sizes_near_best(usual_ / parts)) add(size);
        }
        play_worthwhile();
        if (layouts_.empty()) return {laid_out(first), {}};
        if (layouts_.size() == 1) return {in_depth(layouts_.front().candidate), {}};
        return chosen();
    }

    /// Shared layers or whole ones, whichever is faster, and its depth.
    Candidate laid_out(const Candidate& whole) {
        const Candidate shared = candidates_.with_shared_layers(whole);
        const bool taken = candidates_.alike() != nullptr || !costs_memory(whole, shared) ||
                           speed_of(shared) > speed_of(whole);
        return in_depth(taken ? shared : whole);
    }

  private:
    struct Layout {
        Candidate candidate;  ///< not completed
        double most = 0.0;    ///< tokens a second, if its slowest stage never waited
        double speed = 0.0;   ///< played; 0 = not yet
    };

    bool is_given() const { return job_.parallel.microbatch_tokens.has_value(); }

    bool has_no_choice(const Candidate& first) const {
        const bool recomputes = first.replica.recompute == Recompute::layer;
        if (is_given()) return !cuda_ || !recomputes || !may_use(job_, Recompute::none);
        return in_.stages == 1 && !recomputes;
    }

    /// Whether shared layers leave less memory to keep activations in.
    static bool costs_memory(const Candidate& whole, const Candidate& shared) {
        return whole.replica.recompute == Recompute::layer &&
               !same_layers(shared.replica, whole.replica);
    }

    /// The first of layouts_ is the best one then.
    bool falls_behind() {
        if (in_.least_speed <= 0.0 || layouts_.empty()) return false;
        const double wanted = within_reach * in_.least_speed;
        const auto most = std::ranges::max_element(layouts_, {}, &Layout::most);
        if ((1.0 + most_spare) * most->most < wanted) {
            std::iter_swap(layouts_.begin(), most);
            return true;
        }
        play_worthwhile();
        return layouts_.front().speed < wanted;
    }

    std::vector<std::int64_t> coarse_sizes(const Candidate& first) const {
        if (is_given()) return {*job_.parallel.microbatch_tokens};
        const std::int64_t fewest = least_size();
        std::set<std::int64_t> sizes{first.replica.microbatch_tokens};
        for (std::int64_t parts = 1; parts <= coarse_parts; ++parts) {
            const std::int64_t size = usual_ * parts / coarse_parts;
            if (size >= fewest) sizes.insert(size);
        }
        if (const std::int64_t most = most_without(fewest); most > 0) sizes.insert(most);
        if (const std::int64_t most = most_by_cost(fewest); most > 0) sizes.insert(most);
        return {sizes.rbegin(), sizes.rend()};
    }

    /// What a job gets that says `recompute: none`; 0 = that does not fit beside as many adapters.
    std::int64_t most_by_cost(std::int64_t fewest) const {
        if (!cuda_ || first_.replica.recompute != Recompute::layer ||
            !may_use(job_, Recompute::none)) {
            return 0;
        }
        Job sizes = job_;
        sizes.parallel.recompute = Recompute::none;
        const Attempt attempt = candidates_.admitted(sizes);
        const std::int64_t size = attempt.candidate.replica.microbatch_tokens;
        return attempt.fits && size >= fewest && size <= usual_ ? size : 0;
    }

    /// The largest size in whole granules that needs no recomputation; 0 = not even the fewest.
    std::int64_t most_without(std::int64_t fewest) const {
        if (!cuda_ || fewest > usual_ || !may_use(job_, Recompute::none)) return 0;
        Job sizes = job_;
        sizes.parallel.recompute = Recompute::none;
        const auto fits = [&](std::int64_t granules) {
            sizes.parallel.microbatch_tokens = granules * token_granule;
            return candidates_.hold_all(sizes);
        };
        const std::int64_t least = ceil_div(fewest, token_granule);
        if (!fits(least)) return 0;
        return token_granule * last_that_holds(least, usual_ / token_granule + 1, fits);
    }

    /// On the CPU memory is seldom short, and recomputation is what the usual size needs.
    bool is_open(Recompute recompute) const {
        return may_use(job_, recompute) && (cuda_ || recompute == first_.replica.recompute);
    }

    /// Of one stage it gains nothing that fewer adapters train at once.
    bool makes_wait(const Candidate& candidate) const {
        return in_.stages == 1 && candidate.first_admitted.size() < first_.first_admitted.size();
    }

    /// With each recomputation that is open and may be the fastest.
    void add(std::int64_t size) {
        if (!sizes_.insert(size).second) return;
        for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
            if (!is_open(recompute)) continue;
            Job sizes = job_;
            sizes.parallel.microbatch_tokens = size;
            sizes.parallel.recompute = recompute;
            const Attempt attempt = candidates_.admitted(sizes);
            if (!attempt.fits || makes_wait(attempt.candidate)) continue;
            const Candidate shared = candidates_.with_shared_layers(attempt.candidate);
            add(shared);
            if (costs_memory(attempt.candidate, shared)) add(attempt.candidate);
            if (attempt.is_full) break;
        }
    }

    void add(const Candidate& candidate) {
        const ReplicaPlan replica = candidates_.completed(candidate).replica;
        const AdapterLoads load = scaled_to(in_.work.usual, replica.microbatch_tokens);
        const double most = static_cast<double>(replica.microbatch_tokens) /
                            slowest_seconds(in_.built_in, replica.stages, load, replica.recompute);
        layouts_.push_back({candidate, most});
    }

    /// Those that may come to be finalists.
    void play_worthwhile() {
        std::stable_sort(layouts_.begin(), layouts_.end(),
                         [](const auto& a, const auto& b) { return a.most > b.most; });
        for (Layout& layout : layouts_) {
            if (layout.speed == 0.0 && layout.most > speed_to_reach(layout)) {
                layout.speed = speed_of(layout.candidate, !predicts_);
            }
        }
        sort_by_speed();
    }

    double speed_to_reach(const Layout& one) const {
        std::vector<double> speeds;
        for (const Layout& layout : layouts_) {
            if (compete(one, layout)) speeds.push_back(layout.speed);
        }
        if (speeds.size() < finalists_) return 0.0;
        const auto last = speeds.begin() + static_cast<std::ptrdiff_t>(finalists_) - 1;
        std::nth_element(speeds.begin(), last, speeds.end(), std::greater<>());
        return *last;
    }

    std::vector<std::int64_t> sizes_near_best(std::int64_t step) const {
        std::vector<std::int64_t> sizes;
        for (const Layout& layout : best_of_each(refined)) {
            const std::int64_t size = layout.candidate.replica.microbatch_tokens;
            for (const std::int64_t near : {size - step, size + step}) {
                const std::int64_t whole = near / token_granule * token_granule;
                if (whole >= least_size() && whole <= usual_) sizes.push_back(whole);
            }
        }
        return sizes;
    }

    std::int64_t least_size() const {
        std::int64_t fewest = cuda_ ? fewest_tokens_cuda : fewest_tokens_cpu;
        if (in_.stages == 1) fewest = usual_ / coarse_parts;
        return std::max(in_.work.longest_sample, fewest);
    }

    /// Those that may be the fastest get their depths; on the CPU the best first.
    FoundLayout chosen() {
        if (cuda_) {
            keep_finalists();
        } else {
            for (Layout& layout : layouts_) layout.speed = final_speed(layout.candidate);
            sort_by_speed();
        }
        std::size_t taken = 0;
        const std::size_t count = cuda_ ? layouts_.size() : std::min(deepened, layouts_.size());
        for (std::size_t i = 0; i < count; ++i) {
            Layout& layout = layouts_[i];
            const Candidate deeper = in_depth(layout.candidate);
            const bool is_known =
                !cuda_ && deeper.replica.max_in_flight == layout.candidate.replica.max_in_flight;
            if (!is_known) {
                const double least = i == 0 ? 0.0 : layouts_[taken].speed;
                layout = {deeper, layout.most, final_speed(deeper, {least, layout.most})};
            }
            if (layout.speed > layouts_[taken].speed) taken = i;
        }
        if (cuda_) {
            sort_by_speed();
            if (closely_ && !is_given()) climb();
            taken = 0;
        }
        if (!cuda_) taken = unless_usual(taken);
        FoundLayout found{layouts_[taken].candidate, {}};
        if (!is_given()) found.trials = trials(taken);
        return found;
    }

    /// From the fastest few to the sizes beside them, as long as these come among them: what is
    /// played of sizes is not quite what is predicted.
    void climb() {
        std::set<std::int64_t> known;
        for (const Layout& layout : layouts_) {
            known.insert(layout.candidate.replica.microbatch_tokens);
        }
        for (std::size_t left = most_climbed; left > 0;) {
            const std::size_t before = layouts_.size();
            for (std::size_t i = 0; i < std::min(climbing, before); ++i) {
                const std::int64_t size = layouts_[i].candidate.replica.microbatch_tokens;
                for (const std::int64_t near :
                     {round_up(size, token_granule) - token_granule,
                      size / token_granule * token_granule + token_granule}) {
                    if (left == 0 || near < least_size() || near > usual_) continue;
                    if (!known.insert(near).second) continue;
                    sizes_.erase(near);
                    add(near);
                    --left;
                }
            }
            if (layouts_.size() == before) return;
            for (std::size_t i = before; i < layouts_.size(); ++i) {
                layouts_[i].candidate = in_depth(layouts_[i].candidate);
                layouts_[i].speed =
                    final_speed(layouts_[i].candidate, {layouts_.front().speed, layouts_[i].most});
            }
            sort_by_speed();
        }
    }

    /// On the CPU times vary: the usual size, where no other is at least 2% faster.
    std::size_t unless_usual(std::size_t taken) {
        const auto usual = std::find_if(layouts_.begin(), layouts_.end(), [&](const Layout& one) {
            return one.candidate.replica.microbatch_tokens == first_.replica.microbatch_tokens;
        });
        if (usual == layouts_.end()) return taken;
        usual->candidate = in_depth(usual->candidate);
        usual->speed = final_speed(usual->candidate);
        const bool gains = layouts_[taken].speed >= (1.0 + least_gain_cpu) * usual->speed;
        return gains ? taken : static_cast<std::size_t>(usual - layouts_.begin());
    }

    /// What is played of layouts that recompute and of others is not quite comparable: of jobs that
    /// are soon predicted the best of each are.
    bool compete(const Layout& a, const Layout& b) const {
        return !closely_ || a.candidate.replica.recompute == b.candidate.replica.recompute;
    }

    /// Of layouts_, which are sorted, those that only so few of their kind are before.
    std::vector<Layout> best_of_each(std::size_t count) const {
        std::vector<Layout> best;
        for (const Layout& layout : layouts_) {
            const auto before = std::count_if(best.begin(), best.end(), [&](const Layout& other) {
                return compete(other, layout);
            });
            if (before < static_cast<std::ptrdiff_t>(count)) best.push_back(layout);
        }
        return best;
    }

    /// Of those that come near the fastest.
    void keep_finalists() {
        const std::vector<Layout> fastest = best_of_each(1);
        layouts_ = best_of_each(finalists_);
        std::erase_if(layouts_, [&](const Layout& layout) {
            return std::ranges::any_of(fastest, [&](const Layout& first) {
                return compete(first, layout) && layout.speed < near_enough * first.speed;
            });
        });
    }

    /// 0 where it is given up as it cannot be the fastest.
    double final_speed(const Candidate& candidate, SpeedLimits limits = {}) {
        limits.least *= 1.0 - most_spare;
        return predicts_ ? predicted_speed(candidate, limits) : speed_of(candidate);
    }

    void sort_by_speed() {
        std::stable_sort(layouts_.begin(), layouts_.end(),
                         [](const auto& a, const auto& b) { return a.speed > b.speed; });
    }

    /// Per size that was played its fastest layout.
    std::vector<LayoutTrial> trials(std::size_t taken) const {
        std::vector<LayoutTrial> trials;
        std::set<std::int64_t> listed;
        const auto list = [&](const Layout& layout) {
            const std::int64_t size = layout.candidate.replica.microbatch_tokens;
            if (layout.speed == 0.0 || !listed.insert(size).second) return;
            const auto adapters = std::ssize(layout.candidate.first_admitted);
            trials.push_back({size, static_cast<std::int32_t>(adapters), layout.speed});
        };
        list(layouts_[taken]);
        for (const Layout& layout : layouts_) list(layout);
        std::stable_sort(trials.begin() + 1, trials.end(), [](const auto& a, const auto& b) {
            return a.microbatch_tokens > b.microbatch_tokens;
        });
        return trials.size() > 1 ? trials : std::vector<LayoutTrial>();
    }

    double speed_of(const Candidate& candidate, bool rough = false) {
        return player_.speed(plan_with(in_.constants, candidates_.completed(candidate)), rough);
    }

    /// Whole jobs of one replica alone.
    bool is_predicted_within(std::int64_t most, const Candidate& first) const {
        if (in_.constants.joint) return false;
        std::int64_t samples = 0;
        for (const AdapterId id : first.first_admitted) {
            samples += job_.adapters[index(id)].global_batch_size;
        }
        return samples * rounds_predicted * in_.stages <= most;
    }

    double predicted_speed(const Candidate& candidate, const SpeedLimits& limits) const {
        Plan plan = plan_with(in_.constants, candidates_.completed(candidate));
        plan.costs = in_.built_in;
        ReplicaPlan& replica = plan.replicas.front();
        for (std::size_t s = 0; s < replica.stages.size(); ++s) {
            replica.stages[s].rank = static_cast<std::int32_t>(s) * replica.tensor;
        }
        const ReplicaView view = only_replica(plan);
        for (std::size_t s = 0; s < replica.stages.size(); ++s) {
            plan.memory.insert(plan.memory.end(), static_cast<std::size_t>(replica.tensor),
                               stage_memory(job_, view, s));
        }
        return whole_job_speed(job_, plan, in_.datasets, limits);
    }

    static bool same_layers(const ReplicaPlan& one, const ReplicaPlan& other) {
        return std::equal(one.stages.begin(), one.stages.end(), other.stages.begin(),
                          other.stages.end(), [](const StagePlan& a, const StagePlan& b) {
                              return a.first_layer == b.first_layer &&
                                     a.layer_count == b.layer_count;
                          });
    }

    /// Sequential and 1F1B are defined by as many microbatches in flight as stages.
    bool has_free_depth() const {
        const SchedulePolicy policy = job_.schedule.policy;
        const bool free = policy == SchedulePolicy::balanced || policy == SchedulePolicy::mlora;
        return free && in_.stages > 1;
    }

    Candidate in_depth(Candidate candidate) {
        candidate.replica.max_in_flight = in_.stages;
        if (!has_free_depth() || !candidates_.fits(candidate)) return candidate;
        const ReplicaPlan* alike = candidates_.alike();
        if (alike != nullptr && alike->max_in_flight >= in_.stages) {
            Candidate other = candidate;
            other.replica.max_in_flight = alike->max_in_flight;
            if (candidates_.fits(other)) return other;
        }
        candidate.replica.max_in_flight = with_spare(candidate, fastest_depth(candidate));
        return candidate;
    }

    std::int32_t fastest_depth(Candidate candidate) {
        std::vector<Plan> plans;
        std::int32_t& depth = candidate.replica.max_in_flight;
        for (; depth <= 2 * in_.stages && candidates_.fits(candidate);
             depth += depths_apart(in_.stages)) {
            plans.push_back(plan_with(in_.constants, candidates_.completed(candidate)));
        }
        const std::vector<double> speeds = player_.speeds(plans);
        const double wanted =
            (1.0 - depth_tolerance) * *std::max_element(speeds.begin(), speeds.end());
        const auto enough = std::find_if(speeds.begin(), speeds.end(),
                                         [&](double speed) { return speed >= wanted; });
        return plans[static_cast<std::size_t>(enough - speeds.begin())]
            .replicas.front()
            .max_in_flight;
    }

    /// For what is not played here: messages take time, computations now and then more than usual,
    /// and rounds get fewer adapters, of which the last ones fill a pipeline worst.
    std::int32_t with_spare(const Candidate& candidate, std::int32_t depth) const {
        const std::size_t at_once = std::min(job_.adapters.size(), most_admitted(job_));
        if (depth == in_.stages && at_once == 1) return depth;
        const bool cuda = in_.constants.backend == BackendKind::cuda;
        const std::int32_t spare = cuda ? spare_depths_cuda : spare_depths_cpu;
        std::int32_t deeper = std::max(depth + depth / spare_part, spare * in_.stages);
        while (deeper > depth && !is_roomy_with(candidate, deeper)) --deeper;
        return deeper;
    }

    /// Half of every rank's memory is left; false where it is not known.
    bool is_roomy_with(Candidate candidate, std::int32_t depth) const {
        candidate.replica.max_in_flight = depth;
        return in_.constants.bytes_per_rank > 0 &&
               candidate.replica.recompute != Recompute::layer && candidates_.fits(candidate, 2);
    }

    const DeploymentInputs& in_;
    const Job& job_;
    const Candidates& candidates_;
    LayoutPlayer player_;
    Candidate first_;
    bool cuda_ = false;
    std::int64_t usual_ = 0;
    bool predicts_ = true;
    bool closely_ = false;
    std::size_t finalists_ = finalists;
    std::set<std::int64_t> sizes_;  ///< that were looked at
    std::vector<Layout> layouts_;   ///< that fit
};

}  // namespace

FoundLayout search_layout(const DeploymentInputs& inputs, const Candidates& candidates,
                          const Candidate& first) {
    return LayoutSearch(inputs, candidates).run(first);
}

Candidate laid_out(const DeploymentInputs& inputs, const Candidates& candidates,
                   const Candidate& sized) {
    return LayoutSearch(inputs, candidates).laid_out(sized);
}

std::int32_t depths_apart(std::int32_t stages) {
    return std::max(1, stages / most_depths);
}

}  // namespace loratrain

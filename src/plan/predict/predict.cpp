#include "plan/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission_rules.h"
#include "plan/schedule/schedule_stream.h"

namespace loratrain {

namespace {

constexpr int most_windows = 8;
constexpr std::int32_t enough_samples = 4096;  // of a window
constexpr std::int32_t fewest_rounds = 4;
constexpr std::int32_t samples_at_first = 512;  // by which replicas that are too slow are known
constexpr std::int32_t rounds_at_first = 2;     // at least
/// By so much other rounds may be faster than the first ones.
constexpr double rounds_differ = 0.05;

/// Of the steps that are left.
std::int64_t tokens_of_job(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                           const Progress& progress) {
    double sum = 0.0;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        const std::int64_t epoch = datasets[index(job.adapters[a].dataset)].train_tokens();
        const std::int32_t left = plan.adapters[a].total_steps - progress.steps[a];
        sum += static_cast<double>(epoch) * left / plan.adapters[a].steps_per_epoch;
    }
    return static_cast<std::int64_t>(sum);
}

/// Per adapter, whether it is none of those.
std::vector<bool> all_but(const Plan& plan, const std::vector<AdapterId>& those) {
    std::vector<bool> others(plan.adapters.size(), true);
    for (const AdapterId adapter : those) others[index(adapter)] = false;
    return others;
}

std::vector<std::int32_t> steps_in(const Window& window, std::size_t adapters) {
    std::vector<std::int32_t> steps(adapters, 0);
    for (const BatchPlan& batch : window.batches) ++steps[index(batch.adapter)];
    return steps;
}

/// How often rounds like these can go on until the first of their adapters ends; at least once.
std::int32_t repetitions(const Plan& plan, const Progress& progress,
                         const std::vector<std::int32_t>& steps) {
    std::int32_t times = 0;
    for (std::size_t a = 0; a < steps.size(); ++a) {
        if (steps[a] == 0) continue;
        const std::int32_t left = plan.adapters[a].total_steps - progress.steps[a];
        times = times == 0 ? left / steps[a] : std::min(times, left / steps[a]);
    }
    return std::max(times, 1);
}

std::size_t stage_count(const Plan& plan) {
    std::size_t count = 0;
    for (const ReplicaPlan& replica : plan.replicas) count += replica.stages.size();
    return count;
}

class Predictor {
  public:
    Predictor(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
              MetShapes met)
        : job_(job),
          plan_(plan),
          datasets_(datasets),
          progress_(at_start(plan)),
          met_(std::move(met)),
          per_block_(rounds_per_block(job, plan, datasets)),
          busy_(stage_count(plan), 0.0) {
        for (const ReplicaPlan& replica : plan.replicas) {
            result_.lanes.insert(result_.lanes.end(), replica.stages.size(), replica.tensor);
        }
    }

    /// From now on without the others.
    void keep(std::span<const AdapterId> adapters) {
        for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
            progress_.steps[a] = plan_.adapters[a].total_steps;
        }
        for (const AdapterId adapter : adapters) progress_.steps[index(adapter)] = 0;
    }

    std::optional<Prediction> run(std::int32_t rounds, const SpeedLimits& limits = {}) {
        result_.tokens = tokens_of_job(job_, plan_, datasets_, progress_);
        if (is_too_slow_at_first(rounds, limits)) return std::nullopt;
        int windows = 0;
        while (windows < most_windows && play(rounds)) {
            ++windows;
            if (least_seconds(limits.most) * limits.least > all_tokens()) return std::nullopt;
        }
        if (tokens_ <= 0.0) return std::move(result_);
        for (const double busy : busy_) {
            result_.idle_share.push_back(std::max(0.0, 1.0 - busy / seconds_));
        }
        result_.seconds = seconds_ * static_cast<double>(result_.tokens) / tokens_;
        result_.rounds = rounds_in_all();
        return std::move(result_);
    }

  private:
    double all_tokens() const { return static_cast<double>(result_.tokens); }

    /// Of the whole job, where what is not played goes at this speed.
    double least_seconds(double speed) const {
        return seconds_ + std::max(0.0, all_tokens() - tokens_) / speed;
    }

    void admit_next() {
        std::vector<AdapterClaim> claims;
        for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
            claims.push_back(
                {progress_.steps[a]<plan_.adapters[a].total_steps, progress_.steps[a]> 0});
        }
        progress_.stopped = all_but(plan_, admit(job_, plan_, claims));
    }

    std::unique_ptr<ScheduleStream> stream_with(PackedBlocks& packed) const {
        return std::make_unique<ScheduleStream>(job_, plan_, datasets_, progress_, 1,
                                                ScheduleStream::Evaluations::none, &packed);
    }

    Timeline simulate(const JointWindow& window) const {
        Simulator simulator(job_, plan_);
        simulator.add(window);
        return simulator.timeline();
    }

    /// Of several replicas, by what a few rounds add to fewer, until the first adapter ends: what
    /// is packed of them serves again.
    bool is_too_slow_at_first(std::int32_t most_rounds, const SpeedLimits& limits) {
        if (limits.least <= 0.0 || plan_.replicas.size() == 1) return false;
        admit_next();
        const std::int32_t few =
            std::max(rounds_at_first, rounds_with(samples_at_first, most_rounds));
        if (2 * few > rounds_with_enough(most_rounds)) return false;
        const JointWindow joint = stream_with(packed_)->next(few, true, true);
        const Timeline whole = simulate(joint);
        const Timeline part = simulate(stream_with(packed_)->next(few / 2, true, true));
        const auto more = static_cast<double>(whole.tokens() - part.tokens());
        if (more <= 0.0) return false;
        const std::vector<std::int32_t> steps = steps_in(joint.common(), plan_.adapters.size());
        const double ahead =
            static_cast<double>(whole.tokens()) * repetitions(plan_, progress_, steps);
        const double seconds = ahead * (whole.makespan() - part.makespan()) / more +
                               std::max(0.0, all_tokens() - ahead) / limits.most;
        return all_tokens() < (1.0 - rounds_differ) * limits.least * seconds;
    }

    /// Seconds of one more repetition of `whole`, of so many rounds. A shorter run from the same
    /// start, which fills and drains the pipeline as well, tells what the rounds beyond it take in
    /// between. A part of a block would be packed in another way than the block: of one block alone
    /// the longer run is the one with the next block behind it.
    double repeated_seconds(const Timeline& whole, std::int32_t rounds) {
        const std::int32_t part = rounds / 2 > 0 ? whole_blocks(rounds / 2) : rounds;
        if (part == rounds) return whole.makespan();
        const bool fewer = ends_block(part);
        const Timeline other =
            fewer ? simulate(stream_with(packed_)->next(part, true, true)) : played_twice(rounds);
        const auto tokens = static_cast<double>(whole.tokens());
        const double more = std::abs(tokens - static_cast<double>(other.tokens()));
        const double seconds = std::abs(whole.makespan() - other.makespan());
        return more > 0.0 ? seconds * tokens / more : whole.makespan();
    }

    /// The next rounds, and as many behind them.
    Timeline played_twice(std::int32_t rounds) {
        const auto stream = stream_with(packed_);
        Simulator simulator(job_, plan_);
        simulator.add(stream->next(rounds, false, true));
        simulator.add(stream->next(rounds, true, true));
        return simulator.timeline();
    }

    /// Whether a block ends so many rounds from now.
    bool ends_block(std::int32_t rounds) const {
        return (progress_.round + rounds) % per_block_ == 0;
    }

    /// Without the beginning of a block at their end, unless there is nothing else.
    std::int32_t whole_blocks(std::int32_t rounds) const {
        const std::int32_t begun = (progress_.round + rounds) % per_block_;
        return begun < rounds ? rounds - begun : rounds;
    }

    /// Whole rounds, at most so many, with at most so many samples.
    std::int32_t rounds_with(std::int64_t samples, std::int32_t most) const {
        std::int64_t of_a_round = 0;
        for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
            if (!progress_.stopped[a]) of_a_round += job_.adapters[a].global_batch_size;
        }
        return static_cast<std::int32_t>(
            std::min<std::int64_t>(most, samples / std::max<std::int64_t>(1, of_a_round)));
    }

    /// As many of them as have enough samples: those of hundreds of adapters take long to pack.
    std::int32_t rounds_with_enough(std::int32_t rounds) const {
        return std::min(rounds, std::max(fewest_rounds, rounds_with(enough_samples, rounds)));
    }

    /// False when nothing is left.
    bool play(std::int32_t most_rounds) {
        admit_next();
        const std::int32_t rounds = whole_blocks(rounds_with_enough(most_rounds));
        const auto stream = stream_with(packed_);
        const JointWindow joint = stream->next(rounds, true, true);
        const Window& window = joint.common();
        result_.fillings.add(stream->fillings());
        if (window.batches.empty()) return false;
        const Timeline timeline = simulate(joint);
        add_shares(joint);
        const std::vector<std::int32_t> steps = steps_in(window, plan_.adapters.size());
        const std::int32_t times = repetitions(plan_, progress_, steps);
        // Rounds that are not played meet few new shapes.
        seconds_ += timeline.makespan() + stall_seconds(plan_, joint, met_);
        if (times > 1) seconds_ += (times - 1) * repeated_seconds(timeline, window.rounds);
        packed_ = {};
        tokens_ += times * static_cast<double>(timeline.tokens());
        for (std::size_t s = 0; s < busy_.size(); ++s) busy_[s] += times * timeline.busy(s);
        if (result_.rounds_played == 0) result_.start = timeline;
        result_.rounds_played += window.rounds;
        progress_.round += times * window.rounds;
        for (std::size_t a = 0; a < steps.size(); ++a) progress_.steps[a] += times * steps[a];
        return true;
    }

    void add_shares(const JointWindow& joint) {
        result_.replica_tokens.resize(joint.replicas.size());
        for (std::size_t r = 0; r < joint.replicas.size(); ++r) {
            for (const Microbatch& microbatch : joint.replicas[r].microbatches) {
                result_.replica_tokens[r] += microbatch.tokens();
            }
        }
    }

    /// As many as the longest adapter left takes, or where they take turns all of them together.
    std::int32_t rounds_in_all() const {
        std::int64_t most = 0;
        std::int64_t sum = 0;
        for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
            const std::int64_t left = plan_.adapters[a].total_steps - progress_.steps[a];
            most = std::max(most, left);
            sum += left;
        }
        const auto at_once =
            static_cast<std::int64_t>(std::max<std::size_t>(1, plan_.first_admitted.size()));
        return progress_.round +
               static_cast<std::int32_t>(std::max(most, (sum + at_once - 1) / at_once));
    }

    const Job& job_;
    const Plan& plan_;
    std::span<const DatasetInfo> datasets_;
    Progress progress_;
    MetShapes met_;
    std::int32_t per_block_;
    double seconds_ = 0.0;
    double tokens_ = 0.0;
    std::vector<double> busy_;
    PackedBlocks packed_;  ///< of the rounds that are next
    Prediction result_;
};

}  // namespace

Progress at_start(const Plan& plan) {
    return {0, std::vector<std::int32_t>(plan.adapters.size(), 0),
            all_but(plan, plan.first_admitted)};
}

double Prediction::tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

double Prediction::mean_idle_share() const {
    if (idle_share.empty()) return 0.0;
    double sum = 0.0;
    double ranks = 0.0;
    for (std::size_t s = 0; s < idle_share.size(); ++s) {
        const double of_stage = s < lanes.size() ? lanes[s] : 1;
        sum += of_stage * idle_share[s];
        ranks += of_stage;
    }
    return sum / ranks;
}

Prediction predict(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   std::int32_t rounds, const MetShapes& met) {
    return *Predictor(job, plan, datasets, met).run(rounds);
}

Prediction predict_some(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        std::int32_t rounds, std::span<const AdapterId> adapters,
                        const MetShapes& met) {
    Predictor predictor(job, plan, datasets, met);
    predictor.keep(adapters);
    return *predictor.run(rounds);
}

std::optional<Prediction> predict_within(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets, std::int32_t rounds,
                                         const SpeedLimits& limits) {
    return Predictor(job, plan, datasets, {}).run(rounds, limits);
}

}  // namespace loratrain

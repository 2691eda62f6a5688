#include "plan/sweep/sweep_bounds.h"

#include <algorithm>
#include <cmath>

namespace loratrain {

namespace {

constexpr int halvings = 50;
constexpr double nearly = 1.0 - 1e-9;  // rounding must not make a bound of what is reached

class BoundOfStage {
  public:
    BoundOfStage(const SweepReplica& replica, const SweepRules& rules,
                 std::span<const std::int32_t> counts, std::int32_t replicas, std::size_t stage)
        : replica_(replica),
          counts_(counts),
          replicas_(replicas),
          stage_(stage),
          fixed_(replica.fixed[stage]) {
        for (std::size_t c = 0; c < counts.size(); ++c) {
            const TrialCosts& trial = replica.classes[c];
            work_.push_back(counts[c] * (trial.seconds_on(stage) + beside_seconds(rules, trial)));
        }
    }

    double work() const {
        return least_from(total_for(least_microbatches()) / replicas_, [this](double makespan) {
            return total_for(rounds_within(makespan)) <= makespan * replicas_;
        });
    }

    double staying() const {
        return least_from(work(), [this](double makespan) { return possible(makespan); });
    }

  private:
    /// The least makespan, from `low` up, that is possible; of those that are not, the largest.
    template <typename Possible>
    double least_from(double low, const Possible& is_possible) const {
        double high = total_for(least_microbatches() + replicas_ * most_steps());
        if (is_possible(low)) return low;
        for (int i = 0; i < halvings; ++i) {
            const double middle = (low + high) / 2.0;
            (is_possible(middle) ? high : low) = middle;
        }
        return low;
    }

    /// Of all trials together, where each ends within `makespan` (SweepBounds::work).
    double rounds_within(double makespan) const {
        double rounds = least_microbatches();
        double work = 0.0;
        double per_round = 0.0;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            const TrialCosts& trial = replica_.classes[c];
            work += counts_[c] * trial.seconds_on(stage_);
            per_round += counts_[c] * (trial.rows[stage_] + trial.step[stage_]);
            const double left = makespan * per_round - fixed_ * work;
            if (work > 0.0) rounds = std::max(rounds, left > 0.0 ? work * work / left : INFINITY);
        }
        return rounds;
    }

    double total_for(double microbatches) const {
        double sum = fixed_ * microbatches;
        for (const double work : work_) sum += work;
        return sum;
    }

    double most_steps() const {
        double most = 0.0;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            if (counts_[c] > 0) most = std::max<double>(most, replica_.classes[c].steps);
        }
        return most;
    }

    double least_microbatches() const {
        double tokens = 0.0;
        double bytes = 0.0;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            const TrialCosts& trial = replica_.classes[c];
            const double steps = static_cast<double>(counts_[c]) * trial.steps;
            tokens += steps * trial.tokens;
            // A trial that does not fit trains alone.
            const auto taken = replica_.room > 0 ? std::min(trial.bytes, replica_.room) : 0;
            bytes += steps * static_cast<double>(taken);
        }
        const double by_tokens = tokens / static_cast<double>(replica_.microbatch_tokens);
        const double by_bytes = replica_.room > 0 ? bytes / static_cast<double>(replica_.room) : 0;
        return std::max({most_steps(), nearly * by_tokens, nearly * by_bytes});
    }

    /// Classes come by falling steps.
    bool possible(double makespan) const {
        double work = 0.0;
        double microbatches = 0.0;
        double with_more = 0.0;  // replicas that have trials of more steps
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            work += work_[c];
            const double steps = replica_.classes[c].steps;
            const bool more_of_it = c + 1 < counts_.size() &&
                                    replica_.classes[c + 1].steps == replica_.classes[c].steps;
            if (more_of_it || work <= 0.0) continue;
            const double left = makespan - fixed_ * steps;
            if (left <= 0.0) return false;
            const double with = std::max(with_more, std::ceil(nearly * work / left));
            if (with > replicas_) return false;
            microbatches += (with - with_more) * steps;
            with_more = with;
        }
        return total_for(std::max(microbatches, least_microbatches())) <= makespan * replicas_;
    }

    const SweepReplica& replica_;
    std::span<const std::int32_t> counts_;
    double replicas_;
    std::size_t stage_;
    double fixed_;
    std::vector<double> work_;  ///< per class
};

/// In a pipeline smaller microbatches of others may come between its own, so of the depth what is
/// fixed counts alone.
double least_alone(const SweepReplica& replica, const TrialCosts& trial) {
    if (replica.fixed.size() == 1) return alone_seconds(replica, trial);
    double depth = replica.messages;
    double busiest = 0.0;
    for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
        depth += replica.fixed[s];
        busiest = std::max(busiest, replica.fixed[s] + trial.rows[s] + trial.step[s]);
    }
    return trial.steps * std::max(depth, busiest);
}

}  // namespace

SweepBounds sweep_bounds(const SweepReplica& replica, const SweepRules& rules,
                         std::span<const std::int32_t> counts, std::int32_t replicas) {
    SweepBounds bounds;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        if (counts[c] == 0) continue;
        bounds.longest = std::max(bounds.longest, least_alone(replica, replica.classes[c]));
    }
    for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
        const BoundOfStage bound(replica, rules, counts, replicas, s);
        bounds.work = std::max(bounds.work, bound.work());
        bounds.staying = std::max(bounds.staying, bound.staying());
    }
    return bounds;
}

double ratio_bound(double makespan, std::int32_t ranks, double idle_rank_seconds) {
    const double all = makespan * ranks;
    return all > idle_rank_seconds ? all / (all - idle_rank_seconds) : 1.0;
}

double last_job_bound(double makespan, std::int32_t ranks, double last_seconds,
                      std::int32_t last_ranks) {
    const double idle = last_seconds * (ranks - last_ranks);
    return ratio_bound(makespan, ranks, idle);
}

}  // namespace loratrain

#include "plan/sweep/assign_trials.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "plan/sweep/assign_milp.h"

namespace loratrain {

namespace {

constexpr double bisected_to = 1e-3;  // of the makespan
constexpr double smaller_by = 1e-9;   // a gain has to be more than rounding

std::vector<std::int32_t> queue_of(std::span<const std::int32_t> counts) {
    std::vector<std::int32_t> queue;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        queue.insert(queue.end(), static_cast<std::size_t>(counts[c]),
                     static_cast<std::int32_t>(c));
    }
    return queue;
}

class ContiguousSearch {
  public:
    ContiguousSearch(const SweepReplica& replica, const SweepRules& rules,
                     std::vector<std::int32_t> queue, std::int32_t replicas)
        : replica_(replica),
          rules_(rules),
          queue_(std::move(queue)),
          replicas_(static_cast<std::size_t>(replicas)) {}

    TrialAssignment run() {
        double high = sweep_seconds(replica_, rules_, queue_);
        TrialAssignment best;  // all on the first
        best.queues.resize(replicas_);
        best.queues.front() = queue_;
        best.seconds.assign(replicas_, 0.0);
        best.seconds.front() = high;
        double low = high / static_cast<double>(replicas_) / 2.0;
        while (high - low > bisected_to * high) {
            const double middle = (low + high) / 2.0;
            const std::optional<TrialAssignment> found = filled(middle);
            if (!found) {
                low = middle;
                continue;
            }
            best = *found;
            high = std::min(middle, best.makespan());
        }
        return best;
    }

  private:
    double seconds(std::size_t first, std::size_t count) const {
        return sweep_seconds(replica_, rules_, std::span(queue_).subspan(first, count));
    }

    /// None where some trial is left over.
    std::optional<TrialAssignment> filled(double limit) const {
        TrialAssignment result;
        std::size_t first = 0;
        for (std::size_t g = 0; g < replicas_; ++g) {
            const std::size_t count = most_within(first, limit);
            result.queues.emplace_back(queue_.begin() + static_cast<std::ptrdiff_t>(first),
                                       queue_.begin() + static_cast<std::ptrdiff_t>(first + count));
            result.seconds.push_back(seconds(first, count));
            first += count;
        }
        if (first < queue_.size()) return std::nullopt;
        return result;
    }

    /// Trials from `first` on that end in time: doubled until they do not, then bisected.
    std::size_t most_within(std::size_t first, double limit) const {
        const std::size_t all = queue_.size() - first;
        std::size_t good = 0;
        std::size_t bad = 1;
        while (bad <= all && seconds(first, bad) <= limit) {
            good = bad;
            bad = std::min(2 * bad, std::max(all, bad + 1));
        }
        bad = std::min(bad, all + 1);
        while (bad - good > 1) {
            const std::size_t middle = good + (bad - good) / 2;
            (seconds(first, middle) <= limit ? good : bad) = middle;
        }
        return good;
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::vector<std::int32_t> queue_;
    std::size_t replicas_;
};

class Exchanges {
  public:
    Exchanges(const SweepReplica& replica, const SweepRules& rules, const TrialAssignment& start,
              std::int64_t budget)
        : replica_(replica), rules_(rules), seconds_(start.seconds), budget_(budget) {
        for (const auto& queue : start.queues) {
            Counts& counts = counts_.emplace_back(replica.classes.size(), 0);
            for (const std::int32_t c : queue) ++counts[static_cast<std::size_t>(c)];
        }
        for (const TrialCosts& trial : replica.classes) {
            double most = 0.0;
            for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
                most = std::max(most, trial.seconds_on(s));
            }
            work_.push_back(most + beside_seconds(rules, trial));
        }
    }

    TrialAssignment run() {
        while (improve()) continue;
        TrialAssignment result;
        for (const Counts& counts : counts_) result.queues.push_back(queue_of(counts));
        result.seconds = seconds_;
        return result;
    }

  private:
    using Counts = std::vector<std::int32_t>;

    bool improve() {
        last_ = static_cast<std::size_t>(std::max_element(seconds_.begin(), seconds_.end()) -
                                         seconds_.begin());
        std::vector<std::size_t> others;
        for (std::size_t g = 0; g < counts_.size(); ++g) {
            if (g != last_) others.push_back(g);
        }
        std::stable_sort(others.begin(), others.end(),
                         [&](std::size_t a, std::size_t b) { return seconds_[a] < seconds_[b]; });
        const auto any = [&](auto attempt) {
            return std::any_of(others.begin(), others.end(),
                               [&](std::size_t g) { return (this->*attempt)(g); });
        };
        return any(&Exchanges::move_to) || any(&Exchanges::swap_with);
    }

    bool move_to(std::size_t g) {
        for (std::size_t c = 0; c < work_.size(); ++c) {
            if (counts_[last_][c] > 0 && try_change(g, c, std::nullopt)) return true;
        }
        return false;
    }

    bool swap_with(std::size_t g) {
        for (std::size_t c = 0; c < work_.size(); ++c) {
            if (counts_[last_][c] == 0) continue;
            for (std::size_t back = 0; back < work_.size(); ++back) {
                if (counts_[g][back] > 0 && may_swap(c, back) && try_change(g, c, back)) {
                    return true;
                }
            }
        }
        return false;
    }

    /// In a pipeline, which drains where a trial ends, less work may end later.
    bool may_swap(std::size_t there, std::size_t back) const {
        return replica_.fixed.size() == 1 ? work_[back] < work_[there] : back != there;
    }

    /// Class `there` goes to replica g, and `back` comes from it.
    bool try_change(std::size_t g, std::size_t there, std::optional<std::size_t> back) {
        const double most = seconds_[last_] * (1.0 - smaller_by);
        const double more = work_[there] - (back ? work_[*back] : 0.0);
        if (budget_ <= 0 || seconds_[g] + more >= most + slack(g)) return false;
        change(g, there, back, 1);
        const double of_last = simulated(last_);
        const double of_other = of_last < most ? simulated(g) : most;
        if (of_last < most && of_other < most) {
            seconds_[last_] = of_last;
            seconds_[g] = of_other;
            return true;
        }
        change(g, there, back, -1);
        return false;
    }

    /// A pipeline's seconds may grow by less than the work that comes.
    double slack(std::size_t g) const {
        return replica_.fixed.size() == 1 ? 0.0 : 0.25 * seconds_[g];
    }

    void change(std::size_t g, std::size_t there, std::optional<std::size_t> back,
                std::int32_t by) {
        counts_[last_][there] -= by;
        counts_[g][there] += by;
        if (!back) return;
        counts_[last_][*back] += by;
        counts_[g][*back] -= by;
    }

    double simulated(std::size_t g) {
        const std::vector<std::int32_t> queue = queue_of(counts_[g]);
        budget_ -= std::ssize(queue);
        return sweep_seconds(replica_, rules_, queue);
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::vector<Counts> counts_;  ///< per replica
    std::vector<double> seconds_;
    std::vector<double> work_;  ///< per class: seconds of all that it does, where it takes most
    std::size_t last_ = 0;      ///< the replica that ends last
    std::int64_t budget_;
};

TrialAssignment assignment_of(const SweepReplica& replica, const SweepRules& rules,
                              const std::vector<std::vector<std::int32_t>>& counts) {
    TrialAssignment result;
    for (const auto& of_one : counts) {
        result.queues.push_back(queue_of(of_one));
        result.seconds.push_back(sweep_seconds(replica, rules, result.queues.back()));
    }
    return result;
}

}  // namespace

double TrialAssignment::makespan() const {
    return seconds.empty() ? 0.0 : *std::max_element(seconds.begin(), seconds.end());
}

TrialAssignment contiguous_assignment(const SweepReplica& replica, const SweepRules& rules,
                                      std::span<const std::int32_t> counts, std::int32_t replicas) {
    LORATRAIN_CHECK(counts.size() == replica.classes.size(), "a count for each class");
    LORATRAIN_CHECK(replicas >= 1, "trials need a replica");
    return ContiguousSearch(replica, rules, queue_of(counts), replicas).run();
}

TrialAssignment assign_trials(const SweepReplica& replica, const SweepRules& rules,
                              std::span<const std::int32_t> counts, std::int32_t replicas,
                              const AssignLimits& limits) {
    TrialAssignment best = contiguous_assignment(replica, rules, counts, replicas);
    if (replicas == 1) return best;
    best = Exchanges(replica, rules, best, limits.simulated_trials).run();
    const bool small = std::ssize(counts) * replicas <= limits.columns;
    if (!small || limits.nodes <= 0) return best;
    const auto solved =
        milp_assignment(replica, rules, counts, replicas, best.makespan(), limits.nodes);
    if (!solved) return best;
    const TrialAssignment other =
        Exchanges(replica, rules, assignment_of(replica, rules, *solved), limits.simulated_trials)
            .run();
    return other.makespan() < best.makespan() ? other : best;
}

}  // namespace loratrain

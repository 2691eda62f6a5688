#include "plan/sweep/assign_trials.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "plan/milp.h"

namespace loratrain {

namespace {

/// Columns: z, then per replica M_g, n_cg of each class, and whether it has trials of each level,
/// which are the classes of as many steps.
class AssignmentMilp {
  public:
    AssignmentMilp(const SweepReplica& replica, const SweepRules& rules,
                   std::span<const std::int32_t> counts, std::int32_t replicas)
        : replica_(replica), rules_(rules), counts_(counts), replicas_(replicas) {
        for (const TrialCosts& trial : replica.classes) {
            if (levels_.empty() || levels_.back() != trial.steps) levels_.push_back(trial.steps);
            level_of_.push_back(levels_.size() - 1);
        }
    }

    Milp build() {
        milp_.columns.push_back({0.0, infinity, 1.0, false});
        for (std::int32_t g = 0; g < replicas_; ++g) {
            milp_.columns.push_back({0.0, infinity, 0.0, false});
            for (const std::int32_t count : counts_) {
                milp_.columns.push_back({0.0, static_cast<double>(count), 0.0, true});
            }
            for (std::size_t l = 0; l < levels_.size(); ++l) {
                milp_.columns.push_back({0.0, 1.0, 0.0, true});
            }
        }
        for (std::int32_t g = 0; g < replicas_; ++g) add_replica(g);
        for (std::size_t c = 0; c < counts_.size(); ++c) add_all_of(c);
        return milp_;
    }

    int trials(std::int32_t g, std::size_t c) const { return rounds(g) + 1 + static_cast<int>(c); }

  private:
    static constexpr double infinity = std::numeric_limits<double>::infinity();

    int rounds(std::int32_t g) const {
        return 1 + g * static_cast<int>(1 + counts_.size() + levels_.size());
    }
    int has_level(std::int32_t g, std::size_t l) const {
        return trials(g, counts_.size()) + static_cast<int>(l);
    }

    void add_replica(std::int32_t g) {
        for (std::size_t s = 0; s < replica_.fixed.size(); ++s) {
            Milp::Row& ends = at_least(0, {{rounds(g), -replica_.fixed[s]}});
            for (std::size_t c = 0; c < counts_.size(); ++c) {
                const TrialCosts& trial = replica_.classes[c];
                ends.terms.push_back(
                    {trials(g, c), -trial.seconds_on(s) - beside_seconds(rules_, trial)});
            }
        }
        for (std::size_t l = 0; l < levels_.size(); ++l) add_level(g, l);
        bound_rounds(g, static_cast<double>(replica_.microbatch_tokens),
                     [](const TrialCosts& trial) { return trial.tokens; });
        if (replica_.room > 0) {
            bound_rounds(g, static_cast<double>(replica_.room),
                         [](const TrialCosts& trial) { return static_cast<double>(trial.bytes); });
        }
        // Replicas are alike: the one with more rounds comes first.
        if (g > 0) at_least(rounds(g - 1), {{rounds(g), -1.0}});
    }

    void add_level(std::int32_t g, std::size_t l) {
        at_least(rounds(g), {{has_level(g, l), -static_cast<double>(levels_[l])}});
        double all = 0.0;
        std::vector<Milp::Term> terms;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            if (level_of_[c] != l) continue;
            all += counts_[c];
            terms.push_back({trials(g, c), -1.0});
        }
        terms.push_back({has_level(g, l), all});
        milp_.rows.push_back({0.0, infinity, std::move(terms)});
    }

    /// M_g >= what all steps of its trials take together / what a round holds of it.
    template <typename Taken>
    void bound_rounds(std::int32_t g, double room, const Taken& taken) {
        Milp::Row& row = at_least(rounds(g), {});
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            const TrialCosts& trial = replica_.classes[c];
            row.terms.push_back({trials(g, c), -trial.steps * taken(trial) / room});
        }
    }

    void add_all_of(std::size_t c) {
        const auto count = static_cast<double>(counts_[c]);
        Milp::Row& row = milp_.rows.emplace_back(Milp::Row{count, count, {}});
        for (std::int32_t g = 0; g < replicas_; ++g) row.terms.push_back({trials(g, c), 1.0});
    }

    /// column + terms >= 0
    Milp::Row& at_least(int column, std::vector<Milp::Term> terms) {
        terms.push_back({column, 1.0});
        return milp_.rows.emplace_back(Milp::Row{0.0, infinity, std::move(terms)});
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::span<const std::int32_t> counts_;
    std::int32_t replicas_;
    std::vector<std::int32_t> levels_;   ///< steps
    std::vector<std::size_t> level_of_;  ///< per class
    Milp milp_;
};

/// Trials of each class on each replica; none where it finds nothing below the cutoff, in seconds
/// of its own objective, or there is no solver.
std::optional<std::vector<std::vector<std::int32_t>>> milp_assignment(
    const SweepReplica& replica, const SweepRules& rules, std::span<const std::int32_t> counts,
    std::int32_t replicas, double cutoff, std::int64_t nodes) {
    AssignmentMilp model(replica, rules, counts, replicas);
    MilpLimits limits;
    limits.nodes = nodes;
    limits.cutoff = cutoff;
    const auto solution = solve_milp(model.build(), limits);
    if (!solution) return std::nullopt;
    std::vector<std::vector<std::int32_t>> result;
    for (std::int32_t g = 0; g < replicas; ++g) {
        std::vector<std::int32_t>& trials = result.emplace_back();
        for (std::size_t c = 0; c < counts.size(); ++c) {
            const auto column = static_cast<std::size_t>(model.trials(g, c));
            trials.push_back(static_cast<std::int32_t>(std::lround(solution->values[column])));
        }
    }
    return result;
}

constexpr double bisected_to = 1e-3;  // of the makespan
constexpr double smaller_by = 1e-9;   // a gain has to be more than rounding

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

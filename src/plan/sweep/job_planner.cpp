#include "plan/sweep/job_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "plan/sweep/sweep_bounds.h"

namespace loratrain {

namespace {

constexpr double same_rate = 1e-9;

double most_of(const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
}

double microbatches_for(double tokens, const SweepReplica& replica) {
    const double full = tokens / static_cast<double>(replica.microbatch_tokens);
    return std::max(1.0, std::ceil(full * (1.0 - same_rate)));
}

/// Seconds of all steps of a trial without what is fixed.
double work_of(const TrialCosts& trial) {
    return trial.steps * (most_of(trial.rows) + most_of(trial.step));
}

class JobPacker {
  public:
    JobPacker(const SweepReplica& replica, std::span<const std::int32_t> counts,
              std::span<const double> values, std::int64_t nodes)
        : replica_(replica), counts_(counts), values_(values), nodes_(nodes) {
        for (const TrialCosts& trial : replica.classes) work_.push_back(work_of(trial));
    }

    PackedJob run() {
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            if (counts_[c] == 0) continue;
            const std::int32_t steps = replica_.classes[c].steps;
            if (std::exchange(longest_, steps) != steps) try_longest();
        }
        return best_;
    }

  private:
    void try_longest() {
        double tokens = 0.0;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            if (may_take(c)) tokens += counts_[c] * replica_.classes[c].tokens;
        }
        const auto most = static_cast<std::int64_t>(microbatches_for(tokens, replica_));
        for (std::int64_t m = 1; m <= most; ++m) {
            while (improve(static_cast<double>(m))) continue;
        }
    }

    bool may_take(std::size_t c) const { return replica_.classes[c].steps <= longest_; }

    /// One iteration of Dinkelbach's.
    bool improve(double m) {
        const double rate = best_.rate();
        Knapsack knapsack;
        for (std::size_t c = 0; c < counts_.size(); ++c) {
            const TrialCosts& trial = replica_.classes[c];
            const double room = static_cast<double>(replica_.room);
            const double bytes = room > 0 ? static_cast<double>(trial.bytes) / room : 0.0;
            knapsack.items.push_back(
                {values_[c] - rate * work_[c], bytes,
                 trial.tokens / (m * static_cast<double>(replica_.microbatch_tokens)),
                 may_take(c) ? counts_[c] : 0});
        }
        const double fixed = rate * most_of(replica_.fixed) * m * longest_;
        const KnapsackSolution found = solve_knapsack(knapsack, fixed, nodes_);
        if (found.counts.empty()) return false;
        PackedJob job;
        job.counts = found.counts;
        job.seconds = packed_seconds(replica_, job.counts);
        for (std::size_t c = 0; c < counts_.size(); ++c) job.value += values_[c] * job.counts[c];
        if (job.rate() <= rate * (1.0 + same_rate)) return false;
        best_ = std::move(job);
        return true;
    }

    const SweepReplica& replica_;
    std::span<const std::int32_t> counts_;
    std::span<const double> values_;
    std::int64_t nodes_;
    std::vector<double> work_;   ///< per class
    std::int32_t longest_ = -1;  ///< M: steps of the longest trial that the job may have
    PackedJob best_;
};

}  // namespace

double packed_seconds(const SweepReplica& replica, std::span<const std::int32_t> counts) {
    std::int32_t longest = 0;
    double tokens = 0.0;
    double work = 0.0;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        const TrialCosts& trial = replica.classes[c];
        if (counts[c] == 0) continue;
        longest = std::max(longest, trial.steps);
        tokens += counts[c] * trial.tokens;
        work += counts[c] * work_of(trial);
    }
    return most_of(replica.fixed) * microbatches_for(tokens, replica) * longest + work;
}

PackedJob pack_job(const SweepReplica& replica, std::span<const std::int32_t> counts,
                   std::span<const double> values, std::int64_t nodes) {
    LORATRAIN_CHECK(counts.size() == replica.classes.size() && counts.size() == values.size(),
                    "a count and a value for each class");
    return JobPacker(replica, counts, values, nodes).run();
}

namespace {

std::vector<std::int32_t> without(std::vector<std::int32_t> counts,
                                  const std::vector<std::int32_t>& taken) {
    for (std::size_t c = 0; c < counts.size(); ++c) counts[c] -= taken[c];
    return counts;
}

class PolicySearch {
  public:
    PolicySearch(std::span<const SweepReplica> degrees, std::span<const double> values)
        : degrees_(degrees), values_(values) {}

    JobPolicy run(const std::vector<std::int32_t>& counts, std::int32_t free) {
        descend(counts, free, 0);
        return best_;
    }

  private:
    void descend(const std::vector<std::int32_t>& counts, std::int32_t free, std::size_t degree) {
        bool ended = true;
        for (; degree < degrees_.size(); ++degree) {
            if (degrees_[degree].ranks() > free) continue;
            PackedJob job = pack_job(degrees_[degree], counts, values_);
            if (job.counts.empty()) continue;
            ended = false;
            const std::vector<std::int32_t> left = without(counts, job.counts);
            policy_.jobs.push_back({degree, std::move(job)});
            descend(left, free - degrees_[degree].ranks(), degree);
            policy_.jobs.pop_back();
        }
        if (ended && policy_.rate() > best_.rate()) best_ = policy_;
    }

    std::span<const SweepReplica> degrees_;
    std::span<const double> values_;
    JobPolicy policy_;
    JobPolicy best_;
};

}  // namespace

double JobPolicy::rate() const {
    return std::accumulate(jobs.begin(), jobs.end(), 0.0,
                           [](double sum, const Entry& entry) { return sum + entry.job.rate(); });
}

JobPolicy throughput_policy(std::span<const SweepReplica> degrees,
                            std::span<const std::int32_t> counts, std::span<const double> values,
                            std::int32_t free) {
    return PolicySearch(degrees, values).run({counts.begin(), counts.end()}, free);
}

JobSchedule plan_jobs(std::span<const SweepReplica> degrees, const SweepRules& rules,
                      std::span<const std::int32_t> counts, std::span<const double> values,
                      std::int32_t ranks) {
    JobSchedule schedule;
    std::vector<std::int32_t> left(counts.begin(), counts.end());
    std::vector<ScheduledJob> running;
    std::int32_t free = ranks;
    double now = 0.0;
    while (std::any_of(left.begin(), left.end(), [](std::int32_t n) { return n > 0; })) {
        for (const auto& [degree, job] : throughput_policy(degrees, left, values, free).jobs) {
            left = without(left, job.counts);
            free -= degrees[degree].ranks();
            const double seconds = sweep_seconds(degrees[degree], rules, queue_of(job.counts));
            running.push_back({degree, job.counts, now, now + seconds});
            schedule.jobs.push_back(running.back());
        }
        LORATRAIN_CHECK(!running.empty(), "a trial that fits with no degree");
        const auto next = std::min_element(
            running.begin(), running.end(),
            [](const ScheduledJob& a, const ScheduledJob& b) { return a.end < b.end; });
        now = next->end;
        free += degrees[next->degree].ranks();
        running.erase(next);
    }
    const auto last = std::max_element(
        schedule.jobs.begin(), schedule.jobs.end(),
        [](const ScheduledJob& a, const ScheduledJob& b) { return a.end < b.end; });
    if (last == schedule.jobs.end()) return schedule;
    schedule.seconds = last->end;
    schedule.ar =
        last_job_bound(last->end, ranks, last->end - last->start, degrees[last->degree].ranks());
    return schedule;
}

namespace {

constexpr double rounding = 1e-9;  // of the capacities

class KnapsackSearch {
  public:
    KnapsackSearch(const Knapsack& problem, double cutoff, std::int64_t nodes)
        : items_(problem.items), nodes_(nodes), counts_(items_.size(), 0) {
        best_.value = cutoff;
        for (std::size_t i = 0; i < items_.size(); ++i) {
            if (items_[i].value > 0.0 && items_[i].count > 0) order_.push_back(i);
        }
        find_weights();
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::size_t a, std::size_t b) { return density(a) > density(b); });
    }

    KnapsackSolution run() {
        descend(0, 0.0, {1.0 + rounding, 1.0 + rounding});
        return best_;
    }

  private:
    struct Room {
        double first = 0.0;
        double second = 0.0;
    };

    /// A constraint that all items together respect says nothing.
    void find_weights() {
        Room all;
        for (const std::size_t i : order_) {
            all.first += items_[i].count * items_[i].first;
            all.second += items_[i].count * items_[i].second;
        }
        weight_.first = all.first > 1.0 ? 1.0 : 0.0;
        weight_.second = all.second > 1.0 ? 1.0 : 0.0;
    }

    double weight(std::size_t i) const {
        return weight_.first * items_[i].first + weight_.second * items_[i].second;
    }
    double density(std::size_t i) const {
        const double of_item = weight(i);
        return of_item > 0.0 ? items_[i].value / of_item : std::numeric_limits<double>::max();
    }

    /// Of the items from `next` on, in parts.
    double relaxed(std::size_t next, const Room& room) const {
        double left = weight_.first * room.first + weight_.second * room.second;
        double value = 0.0;
        for (; next < order_.size(); ++next) {
            const std::size_t i = order_[next];
            const double all = items_[i].count * weight(i);
            if (all > left) return value + items_[i].value * left / weight(i);
            left -= all;
            value += items_[i].value * items_[i].count;
        }
        return value;
    }

    std::int32_t most(std::size_t i, const Room& room) const {
        double fit = items_[i].count;
        if (items_[i].first > 0.0) fit = std::min(fit, std::floor(room.first / items_[i].first));
        if (items_[i].second > 0.0) fit = std::min(fit, std::floor(room.second / items_[i].second));
        return static_cast<std::int32_t>(std::max(fit, 0.0));
    }

    void descend(std::size_t next, double value, const Room& room) {
        if (value > best_.value) {
            best_.value = value;
            best_.counts = counts_;
        }
        if (next == order_.size() || --nodes_ < 0) return;
        const double needed = best_.value + rounding * std::abs(best_.value);
        if (value + relaxed(next, room) <= needed) return;
        const std::size_t i = order_[next];
        for (std::int32_t n = most(i, room); n >= 0; --n) {
            counts_[i] = n;
            descend(next + 1, value + n * items_[i].value,
                    {room.first - n * items_[i].first, room.second - n * items_[i].second});
        }
        counts_[i] = 0;
    }

    const std::vector<Knapsack::Item>& items_;
    std::int64_t nodes_;
    std::vector<std::size_t> order_;  ///< of the items that are worth something
    Room weight_;
    std::vector<std::int32_t> counts_;
    KnapsackSolution best_;
};

}  // namespace

KnapsackSolution solve_knapsack(const Knapsack& problem, double cutoff, std::int64_t nodes) {
    return KnapsackSearch(problem, cutoff, nodes).run();
}

}  // namespace loratrain

#include "plan/sweep/pack_job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "plan/sweep/knapsack.h"

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

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/simulate_sweep.h"
#include "plan/sweep/sweep_replica.h"

namespace loratrain {

/// PLoRA's packed jobs: its two algorithms, and the knapsack inside them.

/// Bounded knapsack with two weights: how many of each item give the highest value while both sums
/// of weights are at most 1.
struct Knapsack {
    struct Item {
        double value = 0.0;
        double first = 0.0;   ///< weight, >= 0
        double second = 0.0;  ///< weight, >= 0
        std::int32_t count = 0;
    };
    std::vector<Item> items;
};

struct KnapsackSolution {
    std::vector<std::int32_t> counts;  ///< per item; empty = nothing above the cutoff
    double value = 0.0;
};

/// Branch and bound, items by falling value per weight, bounded by the relaxation under the sum of
/// both constraints. The best solution above `cutoff` within `nodes` nodes; exact if they suffice.
KnapsackSolution solve_knapsack(const Knapsack& problem, double cutoff, std::int64_t nodes);

/// PLoRA's packed job: trials that begin together on one copy of the base and hold it until the
/// longest has ended.
struct PackedJob {
    std::vector<std::int32_t> counts;  ///< of each class; empty = no trial fits
    double value = 0.0;                ///< sum of their values
    double seconds = 0.0;              ///< packed_seconds
    double rate() const { return seconds > 0 ? value / seconds : 0.0; }
};

/// T(H, D), seconds of trials that fit together, in closed form. With M the steps of the longest
/// trial and m = max(1, ceil(sum of tokens of a step / T)) microbatches per round:
///   f m M + sum_k steps_k (rows_k + step_k).
/// In a pipeline each term is its largest value over stages.
double packed_seconds(const SweepReplica& replica, std::span<const std::int32_t> counts);

/// F(D, K) (PLoRA, Eq. 18-19): of `counts` trials, those that fit into the replica together and
/// have the highest sum of values per second (packed_seconds). `values`: per class; the paper's are
/// LoRA ranks. For each M and m, Dinkelbach's iteration makes a bounded integer knapsack: with the
/// rate lambda so far, maximise
///   sum_c n_c (values_c - lambda steps_c (rows_c + step_c))
/// subject to the room and to m T tokens, by branch and bound. If that exceeds lambda f m M, the
/// rate of the solution is the next lambda. Exact unless a knapsack needs more than `nodes`.
PackedJob pack_job(const SweepReplica& replica, std::span<const std::int32_t> counts,
                   std::span<const double> values, std::int64_t nodes = 2000);

/// Packed jobs that start at one moment, each on the ranks of its degree.
struct JobPolicy {
    struct Entry {
        std::size_t degree = 0;  ///< of the degrees given
        PackedJob job;
    };
    std::vector<Entry> jobs;  ///< by falling degree
    double rate() const;      ///< Eq. 13: sum over jobs of value / seconds
};

/// PLoRA's Algorithm 1, decomposed throughput maximisation: of all sequences of non-increasing
/// degrees that fit on `free` ranks, the one with the highest rate. Each job is F(D, trials that
/// earlier jobs leave). (The paper prints any order of degrees and the least time. But jobs differ
/// in what they train, and its Appendix C assumes that degrees do not rise.) `degrees`: a replica
/// of each degree, by falling ranks. Empty if no trial is left or fits.
JobPolicy throughput_policy(std::span<const SweepReplica> degrees,
                            std::span<const std::int32_t> counts, std::span<const double> values,
                            std::int32_t free);

/// A packed job in time.
struct ScheduledJob {
    std::size_t degree = 0;
    std::vector<std::int32_t> counts;  ///< of each class
    double start = 0.0;                ///< seconds
    double end = 0.0;
};

struct JobSchedule {
    std::vector<ScheduledJob> jobs;  ///< as they start
    double seconds = 0.0;
    double ar = 1.0;  ///< last_job_bound of the job that ends last
};

/// PLoRA's Algorithm 2, the job planner: whenever ranks are free, the jobs of throughput_policy()
/// start on them. A job holds its ranks for the seconds of simulate_sweep(). Error if a trial fits
/// with no degree.
JobSchedule plan_jobs(std::span<const SweepReplica> degrees, const SweepRules& rules,
                      std::span<const std::int32_t> counts, std::span<const double> values,
                      std::int32_t ranks);

}  // namespace loratrain

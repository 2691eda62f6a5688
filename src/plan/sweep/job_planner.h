#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/simulate_sweep.h"
#include "plan/sweep/sweep_replica.h"

namespace loratrain {

/// Of each item so many that the value is highest and both sums of weights stay within 1.
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
/// both constraints. Only solutions of more than `cutoff`; the best of at most `nodes` nodes, exact
/// where these suffice.
KnapsackSolution solve_knapsack(const Knapsack& problem, double cutoff, std::int64_t nodes);

/// Trials that begin together on one copy of the base, which they hold until the longest has ended
/// (PLoRA's packed job).
struct PackedJob {
    std::vector<std::int32_t> counts;  ///< of each class; empty = no trial fits
    double value = 0.0;                ///< sum of their values
    double seconds = 0.0;              ///< packed_seconds
    double rate() const { return seconds > 0 ? value / seconds : 0.0; }
};

/// T(H, D) of trials that fit together, in closed form: with M the steps of the longest and
/// m = max(1, ceil(sum of tokens of a step / T)) microbatches of every one of its rounds,
///   f m M + sum_k steps_k (rows_k + step_k).
/// In a pipeline each term is that of the stage where it is largest.
double packed_seconds(const SweepReplica& replica, std::span<const std::int32_t> counts);

/// F(D, K) (PLoRA, Eq. 18-19): of the trials `counts`, those with the highest sum of values per
/// second of packed_seconds that fit into the replica together. `values`: per class, the paper's
/// are ranks. For each M and m, Dinkelbach's iteration makes a bounded integer knapsack of it: with
/// the rate so far, lambda, maximise
///   sum_c n_c (values_c - lambda steps_c (rows_c + step_c))
/// subject to the room and to m T tokens, by branch and bound; where that gives more than
/// lambda f m M, the rate of what was found is the next lambda. Exact unless a knapsack takes more
/// than `nodes`.
PackedJob pack_job(const SweepReplica& replica, std::span<const std::int32_t> counts,
                   std::span<const double> values, std::int64_t nodes = 2000);

/// Packed jobs of one moment, each on as many ranks as its degree says.
struct JobPolicy {
    struct Entry {
        std::size_t degree = 0;  ///< of the degrees given
        PackedJob job;
    };
    std::vector<Entry> jobs;  ///< by falling degree
    double rate() const;      ///< Eq. 13: sum over jobs of value / seconds
};

/// Algorithm 1, decomposed throughput maximisation (PLoRA): of all sequences of non-increasing
/// degrees that fit on `free` ranks, each job F(D, what the ones before leave), the one with the
/// highest rate. (As printed any order of degrees and the least time; jobs differ in what they
/// train, and Appendix C assumes that degrees do not rise.) `degrees`: the replica of each, by
/// falling ranks. Empty where no trial is left or fits.
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

/// Algorithm 2, the job planner: whenever ranks are free, the jobs of throughput_policy start on
/// them; a job holds its ranks as long as simulate_sweep says that its trials take. Error where a
/// trial fits with no degree.
JobSchedule plan_jobs(std::span<const SweepReplica> degrees, const SweepRules& rules,
                      std::span<const std::int32_t> counts, std::span<const double> values,
                      std::int32_t ranks);

}  // namespace loratrain

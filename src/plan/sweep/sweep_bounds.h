#pragma once

#include <cstdint>
#include <span>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// Lower bounds, in seconds, of any order of the trials on a number of replicas.
struct SweepBounds {
    double longest = 0.0;  ///< the longest trial alone
    /// All work shared evenly; holds also if trials move between replicas. The work on a stage is
    /// sum_c count_c steps_c (rows_c + step_c), plus f for each microbatch, plus evaluations and
    /// exports. The number of microbatches is at least the largest of: the steps of the longest
    /// trial; all tokens / T; all steps, each times bytes of its trial / room; R(F).
    /// R(F): let w_r be the work of trials of a set K in round r, which takes L_r >= f + w_r. While
    /// a trial computes a round, no other round of it is computed. With c a trial's seconds per
    /// round, W the work of K and C the sum of its c:
    ///   F C >= sum_r w_r L_r >= f W + sum_r w_r^2 >= f W + W^2 / R, so R >= W^2 / (F C - f W).
    /// K: all trials with at least as many steps as a given one.
    double work = 0.0;
    /// The bound if a trial stays in its replica; at least `work`. A replica with a trial of s
    /// steps has at least s rounds. So to end by F, trials of at least s steps, with work W(s)
    /// together, need
    ///   n(s) >= W(s) / (F - f s)
    /// replicas, each of which spends at least f s.
    double staying = 0.0;

    /// max(longest, work)
    double any() const { return longest > work ? longest : work; }
};

SweepBounds sweep_bounds(const SweepReplica& replica, const SweepRules& rules,
                         std::span<const std::int32_t> counts, std::int32_t replicas);

/// Upper bound of the approximation ratio, F G / (F G - idle), of a makespan F on G ranks with
/// `idle` idle rank-seconds, since no schedule has less work. 1 without a makespan.
double ratio_bound(double makespan, std::int32_t ranks, double idle_rank_seconds);

/// The same if ranks are idle only beside the last job, which takes `last_seconds` on D ranks:
/// F / (F - last_seconds (G - D) / G) (PLoRA, Theorem 6.1).
double last_job_bound(double makespan, std::int32_t ranks, double last_seconds,
                      std::int32_t last_ranks);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <span>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// What no order of the trials takes less than on so many replicas, in seconds.
struct SweepBounds {
    double longest = 0.0;  ///< the longest trial alone
    /// All work shared evenly; holds however trials move between replicas. On a stage of a replica
    /// sum_c count_c steps_c (rows_c + step_c), and f for at least as many microbatches as the
    /// largest of: the rounds of the longest trial; all tokens / T; all steps, each with the bytes
    /// of its trial / room; R(F). Evaluations and exports beside it.
    /// R(F): rounds r in which trials of a set K compute w_r take L_r >= f + w_r, and while one of
    /// them computes no other round that it is in does: with c a trial's seconds a round, W the
    /// work of K and C the sum of its c,
    ///   F C >= sum_r w_r L_r >= f W + sum_r w_r^2 >= f W + W^2 / R, so R >= W^2 / (F C - f W).
    /// K: all trials of as many steps, or more.
    double work = 0.0;
    /// Where a trial stays in its replica; never below `work`. A replica with a trial of s steps
    /// has s rounds or more, so that to end by F those of s steps or more need
    ///   n(s) >= W(s) / (F - f s)
    /// replicas, W(s) the work of all of them; those replicas spend at least f s on each of them.
    double staying = 0.0;

    /// max(longest, work)
    double any() const { return longest > work ? longest : work; }
};

SweepBounds sweep_bounds(const SweepReplica& replica, const SweepRules& rules,
                         std::span<const std::int32_t> counts, std::int32_t replicas);

/// Approximation ratio AR <= F G / (F G - idle), of a makespan F on G ranks that were idle for so
/// many rank-seconds: no schedule has less work. 1 without a makespan.
double ratio_bound(double makespan, std::int32_t ranks, double idle_rank_seconds);

/// The same for a schedule in which ranks are idle only beside the last job, which takes
/// `last_seconds` on D of the ranks: F / (F - last (G - D) / G) (PLoRA, Theorem 6.1).
double last_job_bound(double makespan, std::int32_t ranks, double last_seconds,
                      std::int32_t last_ranks);

}  // namespace loratrain

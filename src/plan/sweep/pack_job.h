#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/sweep_replica.h"

namespace loratrain {

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

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/deploy/replica_options.h"

namespace loratrain {

/// Searches deployments by estimates of a round's seconds.

/// Replicas of each option, and what a round takes with them.
struct OptionCounts {
    std::vector<std::int32_t> replicas;  ///< per option
    double bound = 0.0;                  ///< seconds; no dispatch is faster (least_round_seconds)
    /// dispatched_seconds, or without rounds balanced_..., and sums (with_exchange).
    double seconds = 0.0;
};

struct DeploymentSearch {
    /// The fastest first; empty where no options make up the ranks and hold the last bucket.
    std::vector<OptionCounts> solved;
    std::int64_t options = 0;           ///< that are left after dominated_options
    double combinations = 0.0;          ///< ways of making up `ranks` from them
    std::int64_t options_left_out = 0;  ///< to stay below most_combinations
    std::int64_t bisected = 0;          ///< of `solved`, found among all options nevertheless
    std::int64_t exchanged = 0;         ///< likewise, by exchanging replicas
};

/// Whether all replicas have as many ranks, and none waits to be filled as pipelines do: what a
/// round takes with these is known best.
bool is_even(const DeploymentTask& task, const OptionCounts& counts);

/// Whether all replicas are of one option: none waits for another, whatever filling is taken for.
bool is_alike(const std::vector<std::int32_t>& replicas);

/// Deployments that are looked at one by one; replicas of 2^k ranks make up 64 in 1828 ways.
inline constexpr double most_combinations = 2e5;

/// Deployments of `task.ranks` ranks by the seconds of a round (LobRA, PVLDB 18(8), 2025, section
/// 4.2, Eq. 2 and its two heuristics):
/// 1. dominated options are left out (with rounds a sample is long that takes half of the least a
///    round can take), and above most_combinations those that take the most
///    rank-seconds for what they hold, against the cheapest option for that, and for filling;
///    never the cheapest that holds the last bucket;
/// 2. every multiset of options that makes up the ranks and holds the last bucket is bounded from
///    below by length-based dispatch;
/// 3. those with bounds up to 1.15 times the least, at least 8 and at most 512, are solved for
///    balanced dispatch, the lowest bound first, until no bound is below the best solution, and so
///    are those of one option alone; where options were left out, also those of one option, those
///    that bisection finds (bisect_deployments.h) and those that exchanges of replicas lead to from
///    the best three and the best even one (exchange_replicas.h), among all. With rounds it is that
///    of whole samples: a replica that is just enough for the mean may be the last to end in every
///    other round.
/// Depends on the arguments alone, and on whether there is a solver (milp_available).
DeploymentSearch search_deployments(const DeploymentTask& task);

/// Per option whether another one, replicas of which can take its place rank by rank, holds as much
/// and takes no more rank-seconds in any bucket, nor longer to fill. Of equal options the first
/// stays. Samples are not cut: where one takes the other option more than `long_sample` seconds, it
/// must take this one no less; and where sums take it more than a tenth of that, they must take the
/// other one no less.
std::vector<bool> dominated_options(const std::vector<ReplicaOption>& options,
                                    double long_sample = std::numeric_limits<double>::infinity());

/// Sum T_i g_i / sum g_i of length-based dispatch, g ranks of replica i, T its time: every sample
/// goes to the replica that takes the fewest rank-seconds for it.
double least_round_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas);

/// Tokens a second that no run in this deployment exceeds, whatever is packed and dealt where: each
/// sample of the mean round costs the fewest rank-seconds that ReplicaOption::least has for it.
double most_tokens_per_second(const DeploymentTask& task,
                              const std::vector<std::int32_t>& replicas);

/// min z with sum_i d_ij = samples_j and sum_j seconds_ij d_ij / replicas_i + filling_i <= z
/// (Eq. 3, its linear relaxation); without a solver d is found greedily, the longest bucket first.
/// Some replica holds the last bucket.
double balanced_round_seconds(const DeploymentTask& task,
                              const std::vector<std::int32_t>& replicas);

/// What a round takes that computes for so many seconds, with the sums over its replicas: the last
/// adapter's come behind all computation, computation of the first before all sums.
double with_exchange(const DeploymentTask& task, const std::vector<std::int32_t>& replicas,
                     double seconds);

/// The greedy one: an upper bound.
double greedy_round_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas);

/// Mean of the rounds (1 or more) where, as sample_dispatch.h has it, whole samples go, the longest
/// first, to the replica that ends first if each is filled in every round (ReplicaOption::ahead).
/// Not below least_round_seconds of their mean.
double dispatched_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas);

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/milp.h"
#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// Which replica computes which samples of a round: per replica, in the order of `replicas`, the
/// batches that it has samples of, adapters ascending and samples in batch order. Every group of
/// samples goes whole to one replica whose `capacity` holds it; Error where none does. Depends on
/// the arguments alone.
///
/// - balanced (LobRA section 4.3): greedily (LPT), groups of samples, the longest first, each to
///   the replica that would end first with it, where a replica ends after the filling of its
///   pipeline and its samples' time on its slowest stage (dispatch_seconds); of those that end
///   within a tenth of the group's time to the one with the fewest groups of its batch. With
///   replicas of several kinds also by MILP (dispatch_milp(); 50 nodes: what it finds must not
///   depend on time): how many groups of each length bucket a kind gets, those of the shortest 30%
///   of the tokens in any shares; within its kind a long group goes where it ends first, a short
///   one among all. Taken is what ends first. Which replicas have samples of a batch does not
///   matter, as all ranks sum all gradients.
/// - length: the same, but only among those that take the fewest rank-seconds for the group.
/// - uniform: groups in turn, whatever their lengths; all replicas hold the longest.
std::vector<Round> dispatch(std::span<const PackRules> replicas, const Round& round,
                            DispatchRule rule);

/// What one microbatch after another of these samples takes on the slowest stage of a replica: the
/// fixed costs of a microbatch count by the share of `capacity` that they take.
double dispatch_seconds(const PackRules& replica, std::span<const SampleRef> samples);

/// Before the last stage of a pipeline has its first full microbatch.
double filling_seconds(const PackRules& replica);

/// Replicas that are alike.
struct ReplicaKind {
    std::int32_t replicas = 0;
    double filling = 0.0;         ///< seconds before its last stage has something to do
    std::vector<double> seconds;  ///< of a sample of each bucket that it holds, the shortest ones
};

/// Samples per length bucket, the shortest first, and who may compute them.
struct DispatchTask {
    std::vector<double> samples;
    std::vector<ReplicaKind> kinds;
};

/// LobRA's Eq. 3 (PVLDB 18(8), 2025, section 4.3), with d_ij samples of bucket j for kind i and
/// times in units of `unit` seconds, which keeps its numbers near 1:
///   min z with sum_i d_ij = samples_j, d_ij = 0 where i does not hold j,
///   sum_j seconds_ij d_ij / replicas_i + filling_i <= z.
/// Column 0 is z; d_ij stand behind it kind by kind, as many as the kind holds buckets; kinds
/// without replicas have none. Samples go whole from bucket `first_whole` on, shorter ones in any
/// shares.
Milp dispatch_milp(const DispatchTask& task, double unit, std::size_t first_whole);

}  // namespace loratrain

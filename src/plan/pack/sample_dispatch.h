#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/milp.h"
#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// Deals the samples of a round to replicas. Result: per replica, in the order of `replicas`, its
/// parts of batches, adapters ascending, samples in batch order. A group of samples goes whole to a
/// replica whose `capacity` holds it; Error if none does. Depends on the arguments only.
///
/// - balanced (LobRA section 4.3): greedy (LPT). Groups, longest first, go to the replica
///   that would end first.
///   Its end: filling_seconds() plus dispatch_seconds() of its samples. Among replicas
///   that end within a tenth of the group's time, the one with the fewest groups of the batch.
///   With several kinds of replicas also by dispatch_milp() (50 nodes, so that it does not depend
///   on time): it says how many groups of each length bucket a kind gets, for the shortest 30% of
///   the tokens in fractions; then long groups go where they end first in their kind, short ones
///   among all. The result that ends first counts. All ranks sum all gradients, so it does not
///   matter which replicas have samples of a batch.
/// - length: as balanced, among the replicas that take the fewest rank-seconds for the group.
/// - uniform: groups in turn, whatever their lengths; every replica holds the longest.
std::vector<Round> dispatch(std::span<const PackRules> replicas, const Round& round,
                            DispatchRule rule);

/// Seconds of these samples on the slowest stage of a replica, one microbatch after another. A
/// microbatch's fixed costs count by the share of `capacity` that the samples use.
double dispatch_seconds(const PackRules& replica, std::span<const SampleRef> samples);

/// Seconds until the last stage of a pipeline has its first full microbatch.
double filling_seconds(const PackRules& replica);

/// Replicas that are alike.
struct ReplicaKind {
    std::int32_t replicas = 0;
    double filling = 0.0;         ///< filling_seconds()
    std::vector<double> seconds;  ///< per bucket that it holds, shortest first: of one sample
};

/// Samples per length bucket, shortest first, and the replicas that may compute them.
struct DispatchTask {
    std::vector<double> samples;
    std::vector<ReplicaKind> kinds;
};

/// LobRA's Eq. 3 (PVLDB 18(8), 2025, section 4.3), with d_ij samples of bucket j for kind i and
/// times in units of `unit` seconds, which keeps its numbers near 1:
///   min z with sum_i d_ij = samples_j, d_ij = 0 where i does not hold j,
///   sum_j seconds_ij d_ij / replicas_i + filling_i <= z.
/// Column 0 is z; then come d_ij kind by kind, one per bucket that the kind holds; kinds without
/// replicas have none. d_ij are whole numbers from bucket `first_whole` on.
Milp dispatch_milp(const DispatchTask& task, double unit, std::size_t first_whole);

}  // namespace loratrain

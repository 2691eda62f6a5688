#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/milp.h"

namespace loratrain {

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

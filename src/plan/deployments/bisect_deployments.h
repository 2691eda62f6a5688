#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/deployments/search_deployments.h"

namespace loratrain {

/// Deployments of `task.ranks` ranks where there are too many to look at one by one: whether any
/// ends the mean round within z seconds is a MILP (replicas p_i of option i, shares of buckets):
///   sum_i n_i p_i = ranks, every bucket dealt, sum_j seconds_ij d_ij <= p_i (z - filling_i);
/// z is bisected between the least rank-seconds of all samples over the ranks and `within` seconds,
/// to 1%. Of each z the replicas per option of `task` that were found, the fastest last; empty
/// where none ends within `within`, or there is no solver. `used`: the options to choose from.
std::vector<std::vector<std::int32_t>> bisect_deployments(const DeploymentTask& task,
                                                          const std::vector<std::size_t>& used,
                                                          double within);

}  // namespace loratrain

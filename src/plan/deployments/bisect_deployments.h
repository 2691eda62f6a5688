#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/deployments/search_deployments.h"

namespace loratrain {

/// Finds deployments of `task.ranks` ranks if there are too many to try one by one. A MILP decides
/// whether any deployment ends the mean round within z seconds (replicas p_i of option i, shares
/// d_ij of buckets j):
///   sum_i n_i p_i = ranks, every bucket dealt, sum_j seconds_ij d_ij <= p_i (z - filling_i)
/// z is bisected to 2%, between the rank-seconds of all samples divided by the ranks and `within`
/// seconds. Returns for each z the replicas found per option of `task`, the fastest last. Empty if
/// none is found that ends 1% or more before `within`, which is known to be reached and is not
/// tried, or there is no solver. What the limits of a solve leave open counts as not reached.
/// `used`: the options to choose from.
std::vector<std::vector<std::int32_t>> bisect_deployments(const DeploymentTask& task,
                                                          const std::vector<std::size_t>& used,
                                                          double within);

}  // namespace loratrain

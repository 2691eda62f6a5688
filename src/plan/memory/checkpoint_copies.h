#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Bytes of host memory per rank that a checkpoint takes while training goes on. Each rank copies
/// the state of `adapters` (parameters and both moments, in fp32) and keeps the copy until rank 0
/// has written it. Rank 0 holds the copies of all ranks of its replica.
std::vector<std::uint64_t> checkpoint_copies(const Job& job, const Plan& plan,
                                             std::span<const AdapterId> adapters);

/// Whether the host has room for checkpoint_copies(). On CPU ranks the copies must fit into
/// bytes_per_rank beside everything that the plan counts. On GPUs all copies together must fit into
/// `free_host_bytes`, the free memory of the host, as if all ranks shared that host.
bool checkpoint_copies_fit(const Job& job, const Plan& plan, std::span<const AdapterId> adapters,
                           std::uint64_t free_host_bytes);

}  // namespace loratrain

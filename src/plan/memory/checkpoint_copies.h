#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Bytes of host memory by rank that a checkpoint takes while training goes on: copies of the state
/// of these adapters, parameters and both moments in fp32, until rank 0 has written them; on rank 0
/// those of all ranks of its replica.
std::vector<std::uint64_t> checkpoint_copies(const Job& job, const Plan& plan,
                                             std::span<const AdapterId> adapters);

/// Whether there is room for them: on CPU ranks beside all that the plan counts, on GPUs in what
/// is free of the host's memory, `free_host_bytes`, if all ranks share that host.
bool checkpoint_copies_fit(const Job& job, const Plan& plan, std::span<const AdapterId> adapters,
                           std::uint64_t free_host_bytes);

}  // namespace loratrain

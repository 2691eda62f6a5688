#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Bytes of its host's memory that a rank may take; 0 = not known. The memory of a CPU rank is host
/// memory too.
std::uint64_t host_room(const Cluster& cluster);

/// Adds a problem for each host whose memory is too small for what `plan` puts there
/// (MemoryPlan::host and host_activations). On CPU ranks everything else that the plan counts is
/// added.
void check_host_memory(const Job& job, const Cluster& cluster, const Plan& plan,
                       Problems& problems);

}  // namespace loratrain

#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Bytes of its host's memory that a rank may take; 0 = not known. CPU ranks have no other.
std::uint64_t host_room(const Cluster& cluster);

/// Adds a problem for each host whose memory lacks what `plan` puts there (MemoryPlan::host and
/// host_activations), on CPU ranks beside all else.
void check_host_memory(const Job& job, const Cluster& cluster, const Plan& plan,
                       Problems& problems);

}  // namespace loratrain

#pragma once

#include "base/error.h"
#include "plan/plan.h"

namespace loratrain {

/// Adds what is wrong with parallel.deployment, which is not empty: lanes that cannot share the
/// model (tensor_shard.h), more stages than layers, another number of ranks than were started,
/// replicas of unlike lanes where moments are codes (has_coded_states).
void check_deployment(const Job& job, const ModelSpec& model, const Cluster& cluster,
                      Problems& problems);

}  // namespace loratrain

#pragma once

#include "base/error.h"
#include "plan/plan.h"

namespace loratrain {

/// Adds a problem for each fault of parallel.deployment, which must not be empty:
/// - lanes that cannot share the model (tensor_shard.h);
/// - more stages than layers;
/// - a number of ranks other than the number started;
/// - replicas with different lanes where moments are 8-bit codes (has_coded_states()).
void check_deployment(const Job& job, const ModelSpec& model, const Cluster& cluster,
                      Problems& problems);

}  // namespace loratrain

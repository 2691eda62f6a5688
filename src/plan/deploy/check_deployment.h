#pragma once

#include <cstdint>

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

/// Adds a problem for each number of layers that is above what any rank can have: all layers of the
/// model but one for each further stage. Keys: `layers` of parallel.recompute and of a deployment's
/// recompute; `resident_layers` of model.residency. (parallel.offload gives a bound.)
void check_layer_counts(const Job& job, const ModelSpec& model, Problems& problems);

/// Bytes of its host's memory that a rank may take; 0 = not known. The memory of a CPU rank is host
/// memory too.
std::uint64_t host_room(const Cluster& cluster);

/// Adds a problem for each host whose memory is too small for what `plan` puts there
/// (MemoryPlan::host and host_activations). On CPU ranks everything else that the plan counts is
/// added.
void check_host_memory(const Job& job, const Cluster& cluster, const Plan& plan,
                       Problems& problems);

}  // namespace loratrain

#pragma once

#include <memory>

#include "backend/backend.h"
#include "comm/mpi_session.h"
#include "model/shared_layers.h"
#include "plan/plan.h"

namespace loratrain {

/// Memory of this rank's streamed layers: of the ranks that own them, by the plan, or one copy on
/// each host. Null if no layer streams, or if each rank streams its own. If the ranks of a host
/// cannot open each other's memory, the root warns once and says why; then host memory replaces
/// that of GPUs, and each rank's own copy (null) replaces the shared one. Error on all ranks if a
/// host has no room for that. Collective.
std::unique_ptr<SharedLayers> make_shared_layers(const MpiSession& mpi, const Plan& plan,
                                                 Backend& backend);

}  // namespace loratrain

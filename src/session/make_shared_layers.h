#pragma once

#include <memory>

#include "backend/backend.h"
#include "comm/mpi_session.h"
#include "model/shared_layers.h"
#include "plan/plan.h"

namespace loratrain {

/// Where this rank's layers that stream lie: with the ranks that own them, as the plan says, or
/// in one copy on each host. Where the ranks of a host cannot open each other's memory the root
/// warns once and says why; the host's memory serves in place of GPUs', and copies of each rank's
/// own (null) in place of one. Null too where none streams, or each streams its own. Throws Error
/// on all ranks where a host has no room for what is used in place. Collective.
std::unique_ptr<SharedLayers> make_shared_layers(const MpiSession& mpi, const Plan& plan,
                                                 Backend& backend);

}  // namespace loratrain

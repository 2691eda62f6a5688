#pragma once

#include "backend/backend.h"
#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// profile_costs on the root. GPUs are profiled on all ranks at once. Ranks on processors, which
/// may share a host's cores and memory, wait while the root computes alone; then all compute at the
/// same time, and what they take in the mean beside that tells CostModel::full_speed_ranks. The
/// result is the root's; throws on a rank that cannot measure. Collective.
CostModel profile_ranks(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend);

/// Of `ranks` that slow each other down from `alone` to `together` seconds, as many as would not; 0
/// = they hardly do.
double full_speed_ranks(int ranks, double alone, double together);

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "comm/mpi_session.h"
#include "measure/profile_tasks.h"
#include "plan/plan.h"

namespace loratrain {

/// What ranks have measured; the root's.
struct RankProfiles {
    std::vector<DegreeCosts> costs;     ///< of the tasks
    std::vector<std::size_t> prepared;  ///< of the shapes of each rank's task, from the first on
    FirstUses uses;                     ///< of this rank
};

/// profile_costs of the tasks: on GPUs of the rank's own, on all ranks at once. `roles`: per rank.
/// Ranks on processors, which may share a host's cores and memory, wait while the root computes
/// alone, one task after the other; then all compute the first one at the same time, and what they
/// take in the mean beside that tells CostModel::full_speed_ranks. Throws on a rank that cannot
/// measure, and on the root where one could not that its result needs. Collective.
RankProfiles profile_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           Backend& backend);

/// prepare_shapes of the tasks on GPUs, on all ranks at once, each with a backend of its own that
/// ends then; the result has no costs. A rank that fails has prepared none, and says so.
/// Collective.
RankProfiles prepare_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           const std::function<std::unique_ptr<Backend>(const Plan&)>& backend);

/// profile_ranks of a plan with one replica, whose stages' ranks all have.
CostModel profile_ranks(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend);

/// Of `ranks` that slow each other down from `alone` to `together` seconds, as many as would not; 0
/// = they hardly do.
double full_speed_ranks(int ranks, double alone, double together);

}  // namespace loratrain

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

/// Measures costs on all ranks together.

/// What the ranks have measured. The root has it.
struct RankProfiles {
    std::vector<DegreeCosts> costs;  ///< one for each task
    std::vector<std::size_t>
        prepared;    ///< for each rank: how many shapes of its task, from the first
    FirstUses uses;  ///< this rank's
};

/// Runs profile_costs for the tasks. GPUs: every rank its own task, all at once. Processors, which
/// share a host's cores and memory: the root runs one task after the other alone; then all ranks
/// run the first task at the same time, whose mean slowdown gives CostModel::full_speed_ranks.
/// `roles`: one per rank. Throws on a rank that cannot measure, and on the root if its result needs
/// that rank. Collective.
RankProfiles profile_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           Backend& backend);

/// Runs prepare_shapes for the tasks on GPUs, on all ranks at once, each with a temporary backend.
/// The result has no costs. A rank that fails logs why and counts as having prepared nothing.
/// Collective.
RankProfiles prepare_ranks(const MpiSession& mpi, const Job& job,
                           std::span<const ProfileTask> tasks, std::span<const ProfileRole> roles,
                           const std::function<std::unique_ptr<Backend>(const Plan&)>& backend);

/// The same for a plan with one replica; all ranks have the result.
CostModel profile_ranks(const MpiSession& mpi, const Job& job, const Plan& plan, Backend& backend);

/// How many of `ranks` could compute at full speed, if computing at the same time makes them slower
/// from `alone` to `together` seconds. 0 means that they hardly slow each other down.
double full_speed_ranks(int ranks, double alone, double together);

}  // namespace loratrain

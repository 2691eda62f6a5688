#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"

namespace loratrain {

/// What is profiled for the replicas that have so many lanes.
struct ProfileTask {
    Plan plan;  ///< of one of them alone, as its profile is to know it
    /// Of the first rounds, then what later ones may have: of larger models on GPUs.
    std::vector<StartShape> shapes;
};

/// Whether ranks of the plan prepare the shapes of the first rounds before they train: GPUs do for
/// models of a billion parameters and more, where that takes long.
bool prepares_shapes(const Plan& plan);

/// One for each number of lanes, the first replica's first. A plan has the largest microbatches of
/// its replicas; its first_admitted, its longest sample and on processors its microbatch_tokens are
/// as if there was no more than the first round has: the more rows, the fewer of them does a
/// processor find in its caches, and to a GPU it matters how many columns adapters add to the
/// base's products, and by length which kernels attention takes.
std::vector<ProfileTask> profile_tasks(const Job& job, const Plan& plan,
                                       std::span<const DatasetInfo> datasets);

/// What the stages of all replicas have met when training begins, where they prepare all of that.
MetShapes prepared_shapes(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

/// What a rank has to do with them.
struct ProfileRole {
    std::size_t task = 0;   ///< its own
    std::size_t stage = 0;  ///< MeetingStage::number of the stage that it computes
    friend bool operator==(const ProfileRole&, const ProfileRole&) = default;
};
template <class Archive>
void fields(Archive& archive, ProfileRole& role) {
    archive("task", role.task);
    archive("stage", role.stage);
}

/// Of every rank of the plan.
std::vector<ProfileRole> roles_of_ranks(const Plan& plan, std::span<const ProfileTask> tasks);
/// Of its task's shapes those that the rank's stage has.
std::vector<StartShape> shapes_of(const ProfileRole& role, std::span<const ProfileTask> tasks);

/// The root's, on every rank. Collective.
std::vector<ProfileTask> broadcast_tasks(const MpiSession& mpi,
                                         const std::vector<ProfileTask>& tasks);

/// The plan of one of a plan's replicas alone, on ranks from 0 on, with its lanes' costs.
Plan alone(const Plan& plan, const ReplicaPlan& replica);

}  // namespace loratrain

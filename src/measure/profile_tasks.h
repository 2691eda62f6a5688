#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"

namespace loratrain {

/// What ranks measure before training, and which rank measures what.

/// What is profiled for all replicas with the same number of lanes.
struct ProfileTask {
    Plan plan;  ///< of one of these replicas alone, changed for the profile (profile_tasks())
    /// Shapes of the first rounds, then those that later rounds may have. Only for larger models on
    /// GPUs.
    std::vector<StartShape> shapes;
};

/// Whether ranks prepare the shapes of the first rounds before training. GPUs do for models of a
/// billion parameters and more, where choosing GEMM algorithms takes long.
bool prepares_shapes(const Plan& plan);

/// One task for each number of lanes; the first replica's comes first. A task's plan has the
/// largest microbatch_tokens of its replicas. Its first_admitted, its longest sample and, on
/// processors, its microbatch_tokens are limited to those of the first round: caches of a processor
/// hold a smaller share of more rows; a GPU's products depend on the columns of the adapters, and
/// its attention kernels on the length of samples.
std::vector<ProfileTask> profile_tasks(const Job& job, const Plan& plan,
                                       std::span<const DatasetInfo> datasets);

/// The shapes that all stages have met when training begins, if the ranks prepare every shape.
MetShapes prepared_shapes(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

/// A rank's part in the tasks.
struct ProfileRole {
    std::size_t task = 0;   ///< number of its task
    std::size_t stage = 0;  ///< MeetingStage::number of the stage that it computes
    friend bool operator==(const ProfileRole&, const ProfileRole&) = default;
};
template <class Archive>
void fields(Archive& archive, ProfileRole& role) {
    archive("task", role.task);
    archive("stage", role.stage);
}

/// The role of every rank of the plan.
std::vector<ProfileRole> roles_of_ranks(const Plan& plan, std::span<const ProfileTask> tasks);
/// The shapes of the role's task that its stage has.
std::vector<StartShape> shapes_of(const ProfileRole& role, std::span<const ProfileTask> tasks);

/// The root's tasks on every rank. Collective.
std::vector<ProfileTask> broadcast_tasks(const MpiSession& mpi,
                                         const std::vector<ProfileTask>& tasks);

/// The plan of one replica of `plan` alone: its ranks count from 0, its costs are those of its
/// number of lanes.
Plan alone(const Plan& plan, const ReplicaPlan& replica);

}  // namespace loratrain

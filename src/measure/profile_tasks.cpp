#include "measure/profile_tasks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "comm/collective.h"
#include "measure/profile_costs.h"
#include "plan/cost/cost_model.h"
#include "plan/place.h"
#include "plan/predict/predict.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"
#include "plan/text/plan_fields.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, ProfileTask& task) {
    archive("plan", task.plan);
    archive("shapes", task.shapes);
}

namespace {

/// Mean over tokens of the length of their sample, in samples of one, a half, a quarter and an
/// eighth of the longest.
constexpr double typical_of_longest = 0.708;
/// Whose shapes are looked at.
constexpr std::int32_t start_rounds = 16;

/// The windows of the replicas with so many lanes.
std::vector<Window> windows_of(const Plan& plan, const JointWindow& joint, std::int32_t tensor) {
    std::vector<Window> windows;
    for (std::size_t r = 0; r < joint.replicas.size(); ++r) {
        if (plan.replicas[r].tensor == tensor) windows.push_back(joint.replicas[r]);
    }
    return windows;
}

/// Training microbatches.
std::vector<Microbatch> trained_in(const std::vector<Window>& windows) {
    std::vector<Microbatch> trained;
    for (const Window& window : windows) {
        std::copy_if(window.microbatches.begin(), window.microbatches.end(),
                     std::back_inserter(trained),
                     [](const Microbatch& m) { return !m.evaluation; });
    }
    return trained;
}

std::vector<StartWindow> start_windows(const Plan& plan, const JointWindow& joint,
                                       std::int32_t tensor) {
    std::vector<StartWindow> windows;
    std::size_t number = 0;
    for (std::size_t r = 0; r < joint.replicas.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        StartWindow window{joint.replicas[r].microbatches, {}};
        for (const StagePlan& stage : view.replica.stages) {
            window.stages.push_back(meeting_stage(number++, view, stage));
        }
        if (view.replica.tensor == tensor) windows.push_back(std::move(window));
    }
    return windows;
}

/// As if there was no more than these microbatches of a round have.
void narrow(Plan& plan, const std::vector<Microbatch>& round) {
    if (round.empty()) return;
    if (plan.backend != BackendKind::cuda) {
        std::int64_t most = 1;
        for (const Microbatch& m : round) most = std::max(most, m.tokens());
        plan.replicas.front().microbatch_tokens = most;
        return;
    }
    const Microbatch& first = round.front();
    plan.first_admitted.clear();
    for (const Segment& segment : first.segments) plan.first_admitted.push_back(segment.adapter);
    const MicrobatchLoad load = load_of(first, AttentionSpan());
    const double typical = load.squares / static_cast<double>(load.tokens);
    plan.longest_sample = std::min(
        plan.longest_sample, static_cast<std::int64_t>(std::ceil(typical / typical_of_longest)));
}

auto task_for(std::int32_t tensor, std::span<const ProfileTask> tasks) {
    return std::find_if(tasks.begin(), tasks.end(), [&](const ProfileTask& task) {
        return task.plan.replicas.front().tensor == tensor;
    });
}

const ReplicaPlan& largest_of(const Plan& plan, std::int32_t tensor) {
    const ReplicaPlan* largest = nullptr;
    for (const ReplicaPlan& replica : plan.replicas) {
        if (replica.tensor != tensor) continue;
        const bool larger =
            largest == nullptr || replica.microbatch_tokens > largest->microbatch_tokens;
        if (larger) largest = &replica;
    }
    LORATRAIN_CHECK(largest != nullptr, "replicas of ", tensor, " lanes");
    return *largest;
}

}  // namespace

Plan alone(const Plan& plan, const ReplicaPlan& replica) {
    Plan one = plan;
    one.replicas = {replica};
    number_ranks(one.replicas);
    one.costs = costs_of(plan, replica.tensor);
    one.other_costs.clear();
    one.measured.clear();
    one.joint = false;
    return one;
}

bool prepares_shapes(const Plan& plan) {
    return plan.backend == BackendKind::cuda && !is_small(plan.model);
}

std::vector<ProfileTask> profile_tasks(const Job& job, const Plan& plan,
                                       std::span<const DatasetInfo> datasets) {
    const JointWindow round = plan_joint_window(job, plan, datasets, at_start(plan), 1);
    const bool prepares = prepares_shapes(plan);
    JointWindow rounds;
    if (prepares) rounds = plan_joint_window(job, plan, datasets, at_start(plan), start_rounds);
    std::vector<ProfileTask> tasks;
    for (const ReplicaView& degree : degrees_of(plan)) {
        const std::int32_t tensor = degree.replica.tensor;
        ProfileTask task{alone(plan, largest_of(plan, tensor)), {}};
        narrow(task.plan, trained_in(windows_of(plan, round, tensor)));
        if (prepares) {
            const ReplicaView view = view_of(plan, largest_of(plan, tensor));
            const std::int64_t rows = meeting_stage(0, view, view.replica.stages.back()).head_rows;
            task.shapes = start_shapes(start_windows(plan, rounds, tensor), rows);
            add_possible(task.shapes, view.replica.microbatch_tokens, rows);
        }
        tasks.push_back(std::move(task));
    }
    return tasks;
}

MetShapes prepared_shapes(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets) {
    MetShapes met;
    const ReplicaView first = view_of(plan, plan.replicas.front());
    if (!prepares_shapes(plan) || !meets_new_shapes(predicted_costs_of(first).host)) return met;
    const std::vector<ProfileTask> tasks = profile_tasks(job, plan, datasets);
    std::size_t number = 0;
    for (const ReplicaView& view : views_of(plan)) {
        const auto own = task_for(view.replica.tensor, tasks);
        for (const StagePlan& stage : view.replica.stages) {
            meet(met, meeting_stage(number++, view, stage), own->shapes);
        }
    }
    return met;
}

std::vector<ProfileRole> roles_of_ranks(const Plan& plan, std::span<const ProfileTask> tasks) {
    std::vector<ProfileRole> roles(ranks_in_order(plan).size());
    ProfileRole role;
    for (const ReplicaPlan& replica : plan.replicas) {
        role.task = static_cast<std::size_t>(task_for(replica.tensor, tasks) - tasks.begin());
        for (const StagePlan& stage : replica.stages) {
            std::fill_n(roles.begin() + stage.rank, replica.tensor, role);
            ++role.stage;
        }
    }
    return roles;
}

std::vector<StartShape> shapes_of(const ProfileRole& role, std::span<const ProfileTask> tasks) {
    return shapes_of_stage(tasks[role.task].shapes, role.stage);
}

std::vector<ProfileTask> broadcast_tasks(const MpiSession& mpi,
                                         const std::vector<ProfileTask>& tasks) {
    return broadcast(mpi, tasks);
}

}  // namespace loratrain

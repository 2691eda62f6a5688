#include "measure/profile_tasks.h"

#include <gtest/gtest.h>

#include "plan/predict/predict.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

class ProfileTasks : public testing::Test {
  protected:
    ProfileTasks() : case_(small_model(), {small_adapter("a", 4), small_adapter("b", 8)}) {}
    /// On five ranks.
    void deploy(const std::vector<ReplicaJob>& deployment) {
        case_.cluster.ranks = 5;
        case_.job.parallel.deployment = deployment;
        case_.make_plan_again();
    }
    std::vector<ProfileTask> tasks() const {
        return profile_tasks(case_.job, case_.plan, case_.infos);
    }

    SmallCase case_;
};

TEST_F(ProfileTasks, OneForEachNumberOfLanes) {
    deploy({{2, 1, 1, 32}, {1, 2, 1, 24}, {1, 1, 1, 48}});
    const std::vector<ProfileTask> found = tasks();
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].plan.replicas.front().tensor, 2);
    EXPECT_EQ(found[1].plan.replicas.front().tensor, 1);
    EXPECT_EQ(found[1].plan.replicas.front().stages.size(), 1U);  // of the larger microbatches
    for (const ProfileTask& task : found) {
        EXPECT_EQ(task.plan.replicas.size(), 1U);
        EXPECT_FALSE(task.plan.joint);
        const std::int32_t tensor = task.plan.replicas.front().tensor;
        EXPECT_EQ(costs_of(task.plan, tensor).layer_forward.per_token,
                  costs_of(case_.plan, tensor).layer_forward.per_token);
    }
    EXPECT_NE(found[0].plan.costs.layer_forward.per_token,
              found[1].plan.costs.layer_forward.per_token);
    const std::vector<ProfileRole> wanted{{0, 0}, {0, 0}, {1, 1}, {1, 2}, {1, 3}};
    EXPECT_EQ(roles_of_ranks(case_.plan, found), wanted);
}

TEST_F(ProfileTasks, AreNoLargerThanTheFirstRound) {
    deploy({{1, 1, 5, 60}});  // four samples of 12 tokens, at most one or two on a replica
    const std::vector<ProfileTask> found = tasks();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_LE(found[0].plan.replicas.front().microbatch_tokens, 24);
    EXPECT_GE(found[0].plan.replicas.front().microbatch_tokens, 12);
    EXPECT_TRUE(found[0].shapes.empty());
}

TEST_F(ProfileTasks, LargeModelsHaveMetTheFirstRoundsBeforeTheyTrain) {
    deploy({{1, 1, 5, 60}});
    case_.plan.costs.host.new_rows.each = 1.0;
    case_.plan.costs.host.new_targets.each = 1.0;
    const auto stalls = [&](MetShapes met) {
        const JointWindow rounds =
            plan_joint_window(case_.job, case_.plan, case_.infos, at_start(case_.plan), 3);
        return stall_seconds(case_.plan, rounds, met);
    };
    const auto prepared = [&] { return prepared_shapes(case_.job, case_.plan, case_.infos); };
    const double all = stalls({});
    EXPECT_GT(all, 0.0);
    EXPECT_EQ(stalls(prepared()), all);
    case_.plan.model.layers = 1 << 20;
    EXPECT_EQ(stalls(prepared()), all) << "on processors";
    case_.plan.backend = BackendKind::cuda;
    EXPECT_EQ(stalls(prepared()), 0.0);
}

}  // namespace
}  // namespace loratrain::test

#include "plan/place.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain::plan_test {

namespace {

ReplicaPlan replica_of(std::int32_t tensor, std::size_t stages) {
    ReplicaPlan replica;
    replica.tensor = tensor;
    replica.stages.resize(stages);
    return replica;
}

/// <1,2>, <4,2>, <2,1>, <1,1> as they are given.
Plan deployment() {
    Plan plan;
    plan.replicas = {replica_of(1, 2), replica_of(4, 2), replica_of(2, 1), replica_of(1, 1)};
    number_ranks(plan.replicas);
    return plan;
}

}  // namespace

TEST(Place, ReplicasByFallingTensorThenStagesThenLanes) {
    const Plan plan = deployment();
    std::vector<std::int32_t> tensors;
    for (const ReplicaPlan& replica : plan.replicas) tensors.push_back(replica.tensor);
    EXPECT_EQ(tensors, (std::vector<std::int32_t>{4, 2, 1, 1}));
    EXPECT_EQ(plan.replicas[2].stages.size(), 2U);  // equal ones stay as they are
    std::int32_t rank = 0;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
            EXPECT_EQ(plan.replicas[r].stages[s].rank % plan.replicas[r].tensor, 0);
            for (std::int32_t lane = 0; lane < plan.replicas[r].tensor; ++lane) {
                EXPECT_EQ(place_of(plan, rank++), (RankPlace{r, s, lane}));
            }
        }
    }
    EXPECT_EQ(rank, 13);
}

TEST(Place, LanesNeighbourThoseOfTheNextStage) {
    EXPECT_EQ(neighbours_in(deployment()),
              (std::vector<std::pair<int, int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {10, 11}}));
    EXPECT_TRUE(neighbours_in(Plan{}).empty());
}

/// Of 13 ranks: lanes 0-3, 4-7 and 8-9 belong together.
TEST(Place, TellsStagesThatAreOnSeveralHosts) {
    const Plan plan = deployment();
    std::vector<std::string> hosts(13, "a");
    EXPECT_TRUE(stages_over_hosts(plan, hosts).empty());
    std::fill(hosts.begin() + 8, hosts.end(), "b");
    EXPECT_TRUE(stages_over_hosts(plan, hosts).empty());
    std::fill(hosts.begin() + 6, hosts.begin() + 9, "c");
    const std::vector<std::string> texts = stages_over_hosts(plan, hosts);
    ASSERT_EQ(texts.size(), 2U);
    EXPECT_TRUE(texts[0].starts_with("ranks 4-7 (replica 0, stage 1) are on hosts a and c: "));
    EXPECT_TRUE(texts[1].starts_with("ranks 8-9 (replica 1, stage 0) are on hosts b and c: "));
}

TEST(Place, RefusesARankWithoutOne) {
    EXPECT_THROW(place_of(deployment(), 13), Error);
    EXPECT_THROW(place_of(deployment(), -1), Error);
}

}  // namespace loratrain::plan_test

#include "train/workers/adapter_queues.h"

#include <gtest/gtest.h>

namespace loratrain::test {
namespace {

constexpr AdapterId moving{0};
constexpr AdapterId beside{1};

TEST(MoveCosts, LittleWorkIsNeverMoved) {
    const MoveCosts costs;
    EXPECT_EQ(costs.seconds(), 0.0);
    EXPECT_FALSE(costs.is_worth(0.0));
    EXPECT_FALSE(costs.is_worth(4.9));
    EXPECT_TRUE(costs.is_worth(5.0));
}

TEST(MoveCosts, WorkIsMovedThatTakesTwiceAsLongAsTheLongestMove) {
    MoveCosts costs;
    costs.ordered(moving, 100.0);
    costs.ordered(beside, 100.0);
    costs.returned(beside, 104.0);
    costs.returned(moving, 110.0);
    EXPECT_EQ(costs.seconds(), 10.0);
    EXPECT_FALSE(costs.is_worth(19.9));
    EXPECT_TRUE(costs.is_worth(20.0));
    costs.ordered(moving, 200.0);
    costs.returned(moving, 201.0);
    EXPECT_FALSE(costs.is_worth(19.9)) << "a short one does not make up for it";
}

TEST(MoveCosts, CheckpointsTellUntilAMoveIsOver) {
    MoveCosts costs;
    costs.saved(6.0);
    costs.saved(2.0);
    EXPECT_FALSE(costs.is_worth(11.9));
    EXPECT_TRUE(costs.is_worth(12.0));
    costs.ordered(moving, 10.0);
    EXPECT_FALSE(costs.is_worth(11.9));
    costs.returned(moving, 13.0);
    EXPECT_EQ(costs.seconds(), 3.0);
    EXPECT_TRUE(costs.is_worth(6.0));
}

TEST(MoveCosts, OneThatHasEndedBeforeTellsNothing) {
    MoveCosts costs;
    costs.ordered(moving, 0.0);
    costs.ended(moving);
    costs.returned(moving, 1000.0);
    costs.returned(beside, 1000.0);  // was not asked for
    EXPECT_TRUE(costs.is_worth(5.0));
}

}  // namespace
}  // namespace loratrain::test

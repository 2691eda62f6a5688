#include "train/stream_trainer.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(PlanningDelay, ShortWindowsAndThoseOfUnknownTimeAreFollowedAtOnce) {
    EXPECT_EQ(planning_delay(0.0, 0.0), 0.0);
    EXPECT_EQ(planning_delay(2.0, 0.1), 0.0);
    EXPECT_EQ(planning_delay(4.0, 0.1), 0.0);
}

TEST(PlanningDelay, TheNextLongWindowIsPlannedLateButInTime) {
    EXPECT_DOUBLE_EQ(planning_delay(6.0, 0.1), 5.0);
    EXPECT_DOUBLE_EQ(planning_delay(32.0, 0.1), 28.0);
    EXPECT_DOUBLE_EQ(planning_delay(32.0, 2.0), 24.0);
    EXPECT_EQ(planning_delay(32.0, 10.0), 0.0);
}

}  // namespace
}  // namespace loratrain

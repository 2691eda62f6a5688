#include "measure/profile_ranks.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(FullSpeedRanks, AreAllWhereRanksDoNotDisturbEachOther) {
    EXPECT_EQ(full_speed_ranks(4, 1.0, 1.0), 0.0);
    EXPECT_EQ(full_speed_ranks(4, 1.0, 0.9), 0.0);
    EXPECT_EQ(full_speed_ranks(4, 1.0, 1.02), 0.0);
}

TEST(FullSpeedRanks, FollowFromTheSlowdown) {
    EXPECT_DOUBLE_EQ(full_speed_ranks(4, 1.0, 2.0), 2.0);
    EXPECT_DOUBLE_EQ(full_speed_ranks(2, 3.0, 4.0), 1.5);
    EXPECT_DOUBLE_EQ(full_speed_ranks(4, 1.0, 100.0), 1.0);
}

}  // namespace
}  // namespace loratrain

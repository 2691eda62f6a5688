#include "train/orders/stop_conditions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loratrain {
namespace {

constexpr double eight_hours = 8 * 3600.0;
const Pace unknown;

TEST(StopMargin, IsAMinuteWhereWorkIsQuick) {
    EXPECT_EQ(stop_margin({"", eight_hours}, unknown), 60.0);
    EXPECT_EQ(stop_margin({"", eight_hours}, {20.0, 30.0}), 60.0);
}

TEST(StopMargin, GrowsWithWindowAndCheckpoint) {
    EXPECT_EQ(stop_margin({"", eight_hours}, {50.0, 150.0}), 200.0);
}

TEST(StopMargin, IsAtMostATenthOfTheLimit) {
    EXPECT_DOUBLE_EQ(stop_margin({"", 36.0}, unknown), 3.6);
    EXPECT_DOUBLE_EQ(stop_margin({"", 1000.0}, {200.0, 200.0}), 100.0);
}

TEST(SecondsLeft, IsThatOfTheEarliestLimit) {
    const std::vector<TimeLimit> limits{{"long", eight_hours}, {"short", 3600.0}};
    EXPECT_EQ(seconds_left(limits, unknown, 0.0), 3540.0);
    EXPECT_EQ(seconds_left(limits, unknown, 3000.0), 540.0);
    EXPECT_EQ(seconds_left(limits, {100.0, 50.0}, 3000.0), 450.0);
    EXPECT_EQ(seconds_left(limits, unknown, 5000.0), 0.0);
    EXPECT_TRUE(std::isinf(seconds_left({}, unknown, 1e9)));
}

TEST(ReachedLimit, ComesWhenTheMarginBegins) {
    const std::vector<TimeLimit> limits{{"long", eight_hours}, {"short", 3600.0}};
    EXPECT_FALSE(reached_limit(limits, unknown, 3539.9));
    EXPECT_EQ(reached_limit(limits, unknown, 3540.0)->name, "short");
    EXPECT_EQ(reached_limit(limits, {100.0, 50.0}, 3450.0)->name, "short");
    EXPECT_EQ(reached_limit(limits, unknown, eight_hours)->name, "long");
    EXPECT_FALSE(reached_limit({}, unknown, 1e9));
}

TEST(TimeLimits, NoneAreGiven) {
    EXPECT_TRUE(time_limits(0.0, nullptr, nullptr, 1000.0).empty());
}

TEST(TimeLimits, MaxHoursCountsFromTheStart) {
    const auto limits = time_limits(0.01, nullptr, "17", 1000.0);
    ASSERT_EQ(limits.size(), 1U);
    EXPECT_EQ(limits[0].name, "time limit run.max_hours 0.01 h");
    EXPECT_DOUBLE_EQ(limits[0].seconds, 36.0);
}

TEST(TimeLimits, SlurmGivesTheTimeOfTheEnd) {
    const auto limits = time_limits(2.0, "1700003600", "17", 1700000000.0);
    ASSERT_EQ(limits.size(), 2U);
    EXPECT_EQ(limits[1].name, "time limit of Slurm job 17");
    EXPECT_DOUBLE_EQ(limits[1].seconds, 3600.0);
}

TEST(TimeLimits, UselessEndsAreNone) {
    for (const char* end : {"", "Unknown", "NONE", "1699999999", "-5"}) {
        EXPECT_TRUE(time_limits(0.0, end, "17", 1700000000.0).empty()) << end;
    }
}

TEST(LauncherPatience, IsOpenMpis) {
    EXPECT_FALSE(launcher_patience(nullptr, "20"));
    EXPECT_EQ(launcher_patience("2", nullptr), 1.0);
    EXPECT_EQ(launcher_patience("2", "20"), 20.0);
    EXPECT_EQ(launcher_patience("2", "soon"), 1.0);
}

}  // namespace
}  // namespace loratrain

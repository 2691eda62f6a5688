#include "report/chart_axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace loratrain {
namespace {

std::vector<std::string> labels(const ChartAxis& axis) {
    std::vector<std::string> texts;
    for (const Tick& tick : axis.ticks()) {
        if (!tick.label.empty()) texts.push_back(tick.label);
    }
    return texts;
}

using Texts = std::vector<std::string>;

TEST(ChartAxis, LinearEndsAtRoundNumbers) {
    const ChartAxis axis({1.13, 2.87, 2.0}, false);
    EXPECT_DOUBLE_EQ(axis.low(), 1.0);
    EXPECT_DOUBLE_EQ(axis.high(), 3.0);
    EXPECT_EQ(labels(axis), (Texts{"1", "1.5", "2", "2.5", "3"}));
    EXPECT_DOUBLE_EQ(axis.position(1.0), 0.0);
    EXPECT_DOUBLE_EQ(axis.position(2.0), 0.5);
    EXPECT_DOUBLE_EQ(axis.position(3.0), 1.0);
}

TEST(ChartAxis, ZeroIsShownWhenNearOrAskedFor) {
    EXPECT_EQ(ChartAxis({0.1, 5.0}, false).low(), 0.0);
    EXPECT_EQ(ChartAxis({4.0, 5.0}, false).low(), 4.0);
    EXPECT_EQ(ChartAxis({4.0, 5.0}, false, true).low(), 0.0);
    EXPECT_LT(ChartAxis({-0.3, 5.0}, false).low(), -0.2);
}

TEST(ChartAxis, LogarithmicInStepsOf125) {
    const ChartAxis axis({0.03, 8.0}, true);
    EXPECT_TRUE(axis.logarithmic());
    EXPECT_DOUBLE_EQ(axis.low(), 0.02);
    EXPECT_DOUBLE_EQ(axis.high(), 10.0);
    EXPECT_EQ(labels(axis), (Texts{"0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10"}));
    EXPECT_NEAR(axis.position(std::sqrt(0.02 * 10.0)), 0.5, 1e-12);
}

TEST(ChartAxis, ManyDecadesAreNumberedByDecade) {
    EXPECT_EQ(labels(ChartAxis({1e-4, 10.0}, true)),
              (Texts{"1e-4", "0.001", "0.01", "0.1", "1", "10"}));
    EXPECT_LE(labels(ChartAxis({1e-12, 1e3}, true)).size(), 6U);
}

TEST(ChartAxis, LogarithmOnlyOfPositiveNumbersThatSpanEnough) {
    EXPECT_TRUE(ChartAxis::wants_logarithm({0.1, 2.0}));
    EXPECT_FALSE(ChartAxis::wants_logarithm({0.2, 2.0}));
    EXPECT_FALSE(ChartAxis::wants_logarithm({0.0, 2.0}));
    EXPECT_FALSE(ChartAxis::wants_logarithm({}));
    EXPECT_FALSE(ChartAxis({-1.0, 100.0}, true).logarithmic());
}

TEST(ChartAxis, DegenerateValues) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    for (const auto& values : std::vector<std::vector<double>>{
             {}, {nan}, {0.0}, {0.0, 0.0}, {5.0}, {-3.0, -3.0}, {2.0, infinity, nan}}) {
        for (const bool logarithmic : {false, true}) {
            const ChartAxis axis(values, logarithmic);
            ASSERT_LT(axis.low(), axis.high());
            ASSERT_GE(axis.ticks().size(), 2U);
            for (const double value : values) {
                if (!std::isfinite(value)) continue;
                EXPECT_GE(axis.position(value), -1e-9);
                EXPECT_LE(axis.position(value), 1.0 + 1e-9);
            }
        }
    }
}

TEST(ChartAxis, FitTightlyEndsWithTheValues) {
    const std::vector<double> steps{1.0, 60.0, 120.0};
    ChartAxis axis(steps, false);
    axis.fit_tightly(steps);
    EXPECT_EQ(axis.low(), 1.0);
    EXPECT_EQ(axis.high(), 120.0);
    EXPECT_EQ(labels(axis), (Texts{"20", "40", "60", "80", "100", "120"}));
}

TEST(ChartAxis, TickLabels) {
    EXPECT_EQ(tick_label(0.0), "0");
    EXPECT_EQ(tick_label(0.25), "0.25");
    EXPECT_EQ(tick_label(9500.0), "9500");
    EXPECT_EQ(tick_label(15000.0), "15k");
    EXPECT_EQ(tick_label(2.5e6), "2.5M");
    EXPECT_EQ(tick_label(3e9), "3G");
    EXPECT_EQ(tick_label(0.00025), "2.5e-4");
    EXPECT_EQ(tick_label(1e-5), "1e-5");
    EXPECT_EQ(tick_label(-0.5), "-0.5");
}

}  // namespace
}  // namespace loratrain

#include "base/means.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(RecentMean, BeginsWithWhatComesFirst) {
    RecentMean mean(30.0);
    EXPECT_EQ(mean.value(), 0.0);
    mean.add(5.0, 0.001);
    EXPECT_EQ(mean.value(), 5.0);
    mean.add(5.0, 7.0);
    EXPECT_DOUBLE_EQ(mean.value(), 5.0);
}

TEST(RecentMean, ForgetsByTimeNotByCount) {
    RecentMean once(30.0);
    RecentMean often(30.0);
    once.add(0.0, 1.0);
    often.add(0.0, 1.0);
    once.add(1.0, 30.0);
    for (int i = 0; i < 300; ++i) often.add(1.0, 0.1);
    const double before = (1.0 - std::exp(-1.0 / 30.0)) * std::exp(-1.0);
    EXPECT_NEAR(once.value(), 1.0 - before / (before + 1.0 - std::exp(-1.0)), 1e-12);
    EXPECT_NEAR(often.value(), once.value(), 1e-12);
}

TEST(RecentMean, WhatComesFirstCountsNoMoreThanItLasts) {
    RecentMean mean(30.0);
    mean.add(1.0, 0.5);
    mean.add(2.0, 0.5);
    mean.add(2.0, 0.5);
    EXPECT_NEAR(mean.value(), 5.0 / 3.0, 0.01);
}

TEST(RecentMean, OneOutlierHardlyCounts) {
    RecentMean mean(30.0);
    mean.add(1.0, 60.0);
    mean.add(100.0, 0.03);
    EXPECT_LT(mean.value(), 1.2);
}

}  // namespace
}  // namespace loratrain

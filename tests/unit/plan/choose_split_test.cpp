#include "plan/choose_split.h"

#include <gtest/gtest.h>

#include "plan/partition_layers.h"

namespace loratrain {
namespace {

const MicrobatchLoad load{1000, 0.0, 1000};

/// A layer takes a second, the head `head_seconds`.
CostModel costs_with_head(double head_seconds) {
    CostModel costs;
    costs.layer_forward.fixed = 0.4;
    costs.layer_backward.fixed = 0.6;
    costs.head.fixed = head_seconds;
    return costs;
}

std::int32_t last_layers(double usual_head, double measured_head, std::int32_t layers = 32) {
    return choose_split(layers, 2, costs_with_head(usual_head), costs_with_head(measured_head),
                        load, Recompute::none)
        .back()
        .layer_count;
}

TEST(ChooseSplit, SmallDifferencesKeepTheUsualSplit) {
    EXPECT_EQ(last_layers(2.0, 2.0), 15);
    EXPECT_EQ(last_layers(2.0, 0.8), 15);  // 16 layers would take 1.2% less
    EXPECT_EQ(last_layers(2.0, 3.0), 15);
}

TEST(ChooseSplit, LargeGainsAreTaken) {
    EXPECT_EQ(last_layers(2.0, 8.0), 12);
    EXPECT_EQ(last_layers(10.0, 2.0), 15);
    EXPECT_EQ(last_layers(0.0, 2.0, 4), 1);
}

TEST(ChooseSplit, TheFirstGainAboveFivePercent) {
    EXPECT_EQ(last_layers(2.0, 3.6), 15);  // 18.6 instead of 18: 3.2%
    EXPECT_EQ(last_layers(2.0, 4.9), 14);  // 19.9 instead of 18.9: 5.03%
}

TEST(ChooseSplit, OneStageHasAllLayers) {
    const auto stages =
        choose_split(7, 1, costs_with_head(0), costs_with_head(9), load, Recompute::layer);
    ASSERT_EQ(stages.size(), 1U);
    EXPECT_EQ(stages[0].layer_count, 7);
}

}  // namespace
}  // namespace loratrain

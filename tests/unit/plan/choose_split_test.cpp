#include "plan/deploy/partition_layers.h"

#include <gtest/gtest.h>

#include "plan/cost/cost_model.h"

namespace loratrain {
namespace {

const MicrobatchLoad load{1000, 0.0, 1000};

/// A layer takes a second, the head `head_seconds`.
CostModel costs_with_slow_head(double head_seconds) {
    CostModel costs;
    costs.layer_forward.fixed = 0.4;
    costs.layer_backward.fixed = 0.6;
    costs.head.fixed = head_seconds;
    return costs;
}

std::int32_t last_layers(double usual_head, double measured_head, std::int32_t layers = 32) {
    return choose_split(layers, 2, costs_with_slow_head(usual_head),
                        costs_with_slow_head(measured_head), load, Recompute::none)
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
    const auto stages = choose_split(7, 1, costs_with_slow_head(0), costs_with_slow_head(9), load,
                                     Recompute::layer);
    ASSERT_EQ(stages.size(), 1U);
    EXPECT_EQ(stages[0].layer_count, 7);
}

/// Four adapters of 250 tokens.
AdapterLoads four_adapters() {
    AdapterLoads loads;
    for (int a = 0; a < 4; ++a) loads.add(AdapterId{a}, {250, 0.0, 250});
    return loads;
}

/// A token takes a millisecond in a layer, and `head_layers` in the head.
CostModel costs_by_tokens(double head_layers) {
    CostModel costs;
    costs.layer_forward.per_token = 0.4e-3;
    costs.layer_backward.per_token = 0.6e-3;
    costs.head.per_token = head_layers * 1e-3;
    return costs;
}

/// Layers of the first stage, a shared one by its share of the adapters.
double first_layers(double usual_head, double measured_head, const AdapterLoads& loads,
                    std::int32_t layers = 10) {
    const std::vector<StagePlan> stages =
        choose_split(layers, 2, costs_by_tokens(usual_head), costs_by_tokens(measured_head), loads,
                     Recompute::none);
    return forward_seconds(costs_by_tokens(0.0), stages[0], loads) / 0.4;
}

TEST(ChooseSplit, SharesLayersByUsualCosts) {
    EXPECT_NEAR(first_layers(1.0, 1.0, four_adapters()), 5.5, 1e-9);
    EXPECT_NEAR(first_layers(1.5, 1.5, four_adapters()), 5.75, 1e-9);
    EXPECT_NEAR(first_layers(1.0, 1.0, four_adapters().total), 6.0, 1e-9);
}

TEST(ChooseSplit, SmallDifferencesKeepWhatIsShared) {
    EXPECT_NEAR(first_layers(1.0, 0.5, four_adapters()), 5.5, 1e-9);
    EXPECT_NEAR(first_layers(1.0, 0.0, four_adapters(), 20), 10.5, 1e-9);
    EXPECT_NEAR(first_layers(1.0, 1.5, four_adapters()), 5.5, 1e-9);
}

TEST(ChooseSplit, LargeGainsShareOtherwise) {
    EXPECT_NEAR(first_layers(1.0, 0.0, four_adapters()), 5.0, 1e-9);
    EXPECT_NEAR(first_layers(1.0, 3.0, four_adapters()), 6.5, 1e-9);
    EXPECT_NEAR(first_layers(0.0, 1.5, four_adapters()), 5.75, 1e-9);
}

}  // namespace
}  // namespace loratrain

#include "plan/cost/built_in_costs.h"
#include "plan/deploy/partition_layers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/model_presets.h"
#include "plan/cost/cost_model.h"
#include "plan/stage_layers.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A token takes a second in a layer, of which backwards 0.6, and `head_layers` in the head.
CostModel token_costs(double head_layers) {
    CostModel costs;
    costs.layer_forward.per_token = 0.4;
    costs.layer_backward.per_token = 0.6;
    costs.head.per_token = head_layers;
    return costs;
}

/// So many tokens of each adapter, all of them targets.
AdapterLoads loads_of_tokens(const std::vector<std::int64_t>& tokens) {
    AdapterLoads loads;
    for (std::size_t a = 0; a < tokens.size(); ++a) {
        const auto length = static_cast<double>(tokens[a]);
        loads.add(static_cast<AdapterId>(a), {tokens[a], 200.0 * length, tokens[a]});
    }
    return loads;
}

/// A model's layers, shared and whole.
struct Shared {
    Shared(std::int32_t layers, std::int32_t stages, const CostModel& costs,
           const AdapterLoads& loads, Recompute recompute = Recompute::none)
        : whole(partition_layers(layers, stages, costs, loads.total, recompute)),
          shared(share_layers(whole, costs, loads, recompute)),
          slowest_whole(slowest_seconds(costs, whole, loads, recompute)),
          slowest(slowest_seconds(costs, shared, loads, recompute)) {}

    bool unchanged() const {
        return std::equal(shared.begin(), shared.end(), whole.begin(), whole.end(),
                          [](const StagePlan& a, const StagePlan& b) {
                              return a.rank == b.rank && a.first_layer == b.first_layer &&
                                     a.layer_count == b.layer_count &&
                                     a.has_embedding == b.has_embedding &&
                                     a.has_head == b.has_head && whole_layers(a) == a.layer_count;
                          });
    }

    std::vector<StagePlan> whole;
    std::vector<StagePlan> shared;
    double slowest_whole;
    double slowest;
};

AdapterLoads random_loads(Draw& draw) {
    std::vector<std::int64_t> tokens(
        static_cast<std::size_t>(draw.between(1, draw.one_in(3) ? 64 : 8)));
    for (std::int64_t& t : tokens) {
        t = draw.one_in(6) ? 0 : draw.between(1, draw.one_in(4) ? 4000 : 500);
    }
    tokens.back() = 100;
    return loads_of_tokens(tokens);
}

CostModel random_costs(Draw& draw) {
    const auto value = [&](int most) {
        return draw.one_in(4) ? 0.0 : 0.01 * draw.between(1, most);
    };
    CostModel costs;
    costs.layer_forward = {value(10000), value(100), 1e-4 * value(100)};
    costs.layer_backward = {value(10000), 0.01 + value(200), 1e-4 * value(200)};
    costs.head = {value(10000), value(1000), 0.0};
    return costs;
}

}  // namespace

TEST(ShareLayers, EightAdaptersLevelTheStagesExactly) {
    const AdapterLoads loads = loads_of_tokens(std::vector<std::int64_t>(8, 10));
    const Shared result(32, 4, token_costs(1.5), loads);
    EXPECT_DOUBLE_EQ(result.slowest_whole, 9 * 80.0);
    EXPECT_NEAR(result.slowest, (32 + 1.5) / 4 * 80.0, 1e-6);
    EXPECT_TRUE(cover_every_layer(result.shared, 32, 8));
    EXPECT_EQ(result.shared[0].first_layer, 0);
    EXPECT_EQ(result.shared[0].layer_count, 9);
    EXPECT_EQ(result.shared[1].first_layer, 8);
    EXPECT_TRUE(result.shared[0].has_embedding);
    EXPECT_TRUE(result.shared[3].has_head);
    EXPECT_EQ(result.shared[2].rank, 2);
    for (std::size_t s = 0; s + 1 < 4; ++s) {
        const AdapterSpan below = result.shared[s].last_layer_adapters;
        const AdapterSpan above = result.shared[s + 1].first_layer_adapters;
        EXPECT_NE(below.is_all(), true) << s;
        EXPECT_TRUE(below.end == above.begin || above.end == below.begin) << s;
    }
}

TEST(ShareLayers, ALargeModelWithFewAdapters) {
    const CostModel costs = built_in_costs(*model_preset("llama-3.1-8b"), DType::bf16, "h200");
    const AdapterLoads loads = loads_of_tokens({2048, 2048, 2048, 2048});
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        const Shared result(32, 4, costs, loads, recompute);
        double all = 0.0;
        for (const StagePlan& stage : result.whole) {
            all += stage_seconds(costs, stage, loads, recompute);
        }
        EXPECT_LT(result.slowest, (1.0 - sharing_gain) * result.slowest_whole);
        EXPECT_LT(result.slowest, 1.03 * all / 4);
        EXPECT_TRUE(cover_every_layer(result.shared, 32, 4));
    }
}

TEST(ShareLayers, AdaptersOfUnequalLoads) {
    // Of three layers and no head the second is best left to the first stage for half of the rows.
    const Shared result(3, 2, token_costs(0.0), loads_of_tokens({10, 30, 60}));
    EXPECT_NEAR(result.slowest_whole, 200.0, 1e-9);
    EXPECT_NEAR(result.slowest, 160.0, 1e-9);
    EXPECT_TRUE(cover_every_layer(result.shared, 3, 3));
    const Shared reversed(3, 2, token_costs(0.0), loads_of_tokens({45, 5, 50}));
    EXPECT_NEAR(reversed.slowest, 150.0, 1e-9);
}

TEST(ShareLayers, TheUpperAdaptersMayBeTheFormerStages) {
    // The head is worth half of a layer: a quarter of the rows moves up, or what comes nearest.
    const AdapterLoads loads = loads_of_tokens({60, 20, 20});
    const Shared result(4, 2, token_costs(0.5), loads);
    EXPECT_NEAR(result.slowest_whole, 250.0, 1e-9);
    EXPECT_NEAR(result.slowest, 230.0, 1e-9);
    EXPECT_EQ(result.shared[0].last_layer_adapters, AdapterSpan{2});
    EXPECT_EQ(result.shared[1].first_layer_adapters, (AdapterSpan{0, 2}));
    EXPECT_TRUE(cover_every_layer(result.shared, 4, 3));
}

TEST(ShareLayers, NothingToShareWith) {
    const AdapterLoads two = loads_of_tokens({50, 50});
    EXPECT_TRUE(Shared(5, 1, token_costs(0.5), two).unchanged());
    EXPECT_TRUE(Shared(5, 2, token_costs(0.0), loads_of_tokens({100})).unchanged());
    EXPECT_TRUE(Shared(5, 2, token_costs(0.0), two.total).unchanged());
    EXPECT_FALSE(Shared(5, 2, token_costs(0.0), two).unchanged());
}

TEST(ShareLayers, EveryStageKeepsAWholeLayer) {
    const AdapterLoads loads = loads_of_tokens({50, 50, 50});
    for (const double head : {0.0, 0.5, 5.0}) {
        EXPECT_TRUE(Shared(4, 4, token_costs(head), loads).unchanged()) << head;
        const Shared one_more(5, 4, token_costs(head), loads);
        EXPECT_TRUE(cover_every_layer(one_more.shared, 5, 3)) << head;
    }
    EXPECT_FALSE(Shared(5, 4, token_costs(0.0), loads).unchanged());
}

TEST(ShareLayers, GainsBelowTwoPercentAreLeft) {
    const AdapterLoads loads = loads_of_tokens({50, 50});
    // Of 2n + 1 layers the slowest stage saves half a layer: 0.5 / (n + 1).
    const Shared small(2 * 25 + 1, 2, token_costs(0.0), loads);
    EXPECT_TRUE(small.unchanged());
    EXPECT_EQ(small.slowest, small.slowest_whole);
    const Shared large(2 * 23 + 1, 2, token_costs(0.0), loads);
    EXPECT_FALSE(large.unchanged());
    EXPECT_NEAR(large.slowest, 23.5 * 100.0, 1e-6);
}

TEST(ShareLayers, SharedLayersCostTheirFixedTimeTwice) {
    CostModel costs = token_costs(0.0);
    const AdapterLoads loads = loads_of_tokens({50, 50});
    costs.layer_backward.fixed = 2000.0;
    EXPECT_TRUE(Shared(3, 2, costs, loads).unchanged());
}

TEST(ShareLayers, ManyAdaptersAndStages) {
    std::vector<std::int64_t> tokens(64);
    for (std::size_t a = 0; a < 64; ++a) tokens[a] = static_cast<std::int64_t>(100 + 37 * a % 64);
    const Shared result(80, 16, token_costs(2.0), loads_of_tokens(tokens));
    EXPECT_LT(result.slowest, 0.95 * result.slowest_whole);
    EXPECT_TRUE(cover_every_layer(result.shared, 80, 64));
}

TEST(ShareLayers, NeverSlowerThanWholeLayers) {
    int shared = 0;
    const int cases = random_cases(200);
    for (int seed = 0; seed < cases; ++seed) {
        Draw draw(static_cast<std::uint64_t>(seed) + 1);
        const AdapterLoads loads = random_loads(draw);
        const CostModel costs = random_costs(draw);
        const int stages = draw.between(1, draw.one_in(4) ? 16 : 6);
        const int layers = stages + draw.between(0, draw.one_in(4) ? 64 : 8);
        const Recompute recompute = draw.one_in(2) ? Recompute::layer : Recompute::none;
        const Shared result(layers, stages, costs, loads, recompute);
        const int adapters = static_cast<int>(loads.parts.size());
        EXPECT_TRUE(cover_every_layer(result.shared, layers, adapters)) << "seed " << seed;
        if (result.unchanged()) continue;
        ++shared;
        EXPECT_LT(result.slowest, (1.0 - sharing_gain) * result.slowest_whole) << "seed " << seed;
    }
    EXPECT_GT(shared, cases / 8);
    EXPECT_LT(shared, cases);
}

}  // namespace loratrain::plan_test

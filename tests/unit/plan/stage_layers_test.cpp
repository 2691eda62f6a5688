#include "plan/stage_layers.h"

#include <gtest/gtest.h>

#include <limits>

namespace loratrain {
namespace {

/// Layers 4-8; 4 is shared with the stage before, 8 with the one after.
StagePlan middle_stage() {
    StagePlan stage;
    stage.first_layer = 4;
    stage.layer_count = 5;
    stage.first_layer_adapters = {2};
    stage.last_layer_adapters = {0, 3};
    return stage;
}

std::vector<std::int32_t> range_of(const StagePlan& stage, int adapter) {
    const LayerRange range = layers_of(stage, AdapterId{adapter});
    return {range.first, range.first + range.count};
}

using Range = std::vector<std::int32_t>;

}  // namespace

TEST(AdapterSpan, HoldsItsBeginButNotItsEnd) {
    constexpr AdapterSpan span{2, 4};
    EXPECT_FALSE(span.contains(AdapterId{1}));
    EXPECT_TRUE(span.contains(AdapterId{2}));
    EXPECT_TRUE(span.contains(AdapterId{3}));
    EXPECT_FALSE(span.contains(AdapterId{4}));
    EXPECT_EQ(span, (AdapterSpan{2, 4}));
    EXPECT_NE(span, (AdapterSpan{2, 5}));
    EXPECT_NE(span, (AdapterSpan{1, 4}));
    EXPECT_FALSE((AdapterSpan{2, 2}).contains(AdapterId{2}));
}

TEST(AdapterSpan, IsAllAsItStands) {
    EXPECT_TRUE(AdapterSpan{}.is_all());
    EXPECT_TRUE(AdapterSpan{}.contains(AdapterId{0}));
    EXPECT_TRUE(AdapterSpan{}.contains(AdapterId{std::numeric_limits<std::int32_t>::max() - 1}));
    EXPECT_FALSE(AdapterSpan{1}.is_all());
    EXPECT_FALSE((AdapterSpan{0, 1000}).is_all());
    EXPECT_TRUE(AdapterSpan{1}.contains(AdapterId{1000000}));
}

TEST(StageLayers, OfAStageThatSharesNothing) {
    StagePlan stage;
    stage.first_layer = 3;
    stage.layer_count = 2;
    EXPECT_EQ(range_of(stage, 0), (Range{3, 5}));
    EXPECT_EQ(range_of(stage, 1000), (Range{3, 5}));
    EXPECT_EQ(whole_layers(stage), 2);
    EXPECT_TRUE(adapters_in(stage, 0).is_all());
    EXPECT_TRUE(adapters_in(stage, 1).is_all());
}

TEST(StageLayers, OfAStageThatSharesBothEnds) {
    const StagePlan stage = middle_stage();
    EXPECT_EQ(range_of(stage, 0), (Range{5, 9}));
    EXPECT_EQ(range_of(stage, 1), (Range{5, 9}));
    EXPECT_EQ(range_of(stage, 2), (Range{4, 9}));
    EXPECT_EQ(range_of(stage, 3), (Range{4, 8}));
    EXPECT_EQ(range_of(stage, 1000), (Range{4, 8}));
    EXPECT_EQ(whole_layers(stage), 3);
    EXPECT_EQ(adapters_in(stage, 0), (AdapterSpan{2}));
    for (std::int32_t layer = 1; layer < 4; ++layer) {
        EXPECT_TRUE(adapters_in(stage, layer).is_all());
    }
    EXPECT_EQ(adapters_in(stage, 4), (AdapterSpan{0, 3}));
}

TEST(StageLayers, OfAStageThatSharesOneEnd) {
    StagePlan first = middle_stage();
    first.last_layer_adapters = {};
    EXPECT_EQ(range_of(first, 0), (Range{5, 9}));
    EXPECT_EQ(range_of(first, 5), (Range{4, 9}));
    EXPECT_EQ(whole_layers(first), 4);
    StagePlan last = middle_stage();
    last.first_layer_adapters = {};
    EXPECT_EQ(range_of(last, 0), (Range{4, 9}));
    EXPECT_EQ(range_of(last, 5), (Range{4, 8}));
    EXPECT_EQ(whole_layers(last), 4);
    EXPECT_TRUE(adapters_in(last, 0).is_all());
}

}  // namespace loratrain

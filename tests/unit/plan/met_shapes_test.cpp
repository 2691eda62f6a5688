#include "plan/cost/met_shapes.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

constexpr std::int64_t middle = 0;  // head rows
constexpr std::int64_t last = 1000;

HostCosts stalls() {
    HostCosts host;
    host.new_rows.each = 10.0;
    host.new_targets.each = 100.0;
    return host;
}

Microbatch of_lengths(const std::vector<std::int32_t>& lengths, std::int32_t width = 16) {
    Microbatch microbatch;
    microbatch.segments.push_back({AdapterId{0}, 0, {}});
    for (const std::int32_t length : lengths) {
        microbatch.segments[0].samples.push_back({0, length, length / 2});
    }
    microbatch.columns.augmented = true;
    microbatch.columns.width = width;
    return microbatch;
}

TEST(MetShapes, CostOnceForEveryStage) {
    MetShapes met;
    const Microbatch microbatch = of_lengths({200, 300});
    EXPECT_EQ(met.meet({1, middle}, stalls(), microbatch), 10.0);
    EXPECT_EQ(met.meet({2, last}, stalls(), microbatch), 110.0);
    EXPECT_EQ(met.meet({1, middle}, stalls(), microbatch), 0.0);
    EXPECT_EQ(met.meet({2, last}, stalls(), microbatch), 0.0);
    EXPECT_EQ(met.meet({1, middle}, stalls(), of_lengths({190, 310})), 0.0);
    Microbatch evaluation = microbatch;
    evaluation.evaluation = true;
    EXPECT_EQ(met.meet({2, last}, stalls(), evaluation), 0.0);
}

TEST(MetShapes, EachKindOnItsOwn) {
    MetShapes met;
    met.meet({2, last}, stalls(), of_lengths({200, 300}));
    EXPECT_EQ(met.meet({2, last}, stalls(), of_lengths({200, 300}, 96)), 0.0);
    EXPECT_EQ(met.meet({2, last}, stalls(), of_lengths({200, 300}, 300)), 10.0);
    Microbatch fewer = of_lengths({200, 300});
    fewer.segments[0].samples[1].targets = 0;
    EXPECT_EQ(met.meet({2, last}, stalls(), fewer), 100.0);
    fewer.segments[0].samples[0].targets = 0;
    EXPECT_EQ(met.meet({2, last}, stalls(), fewer), 0.0);
}

/// Adapter 0 of the microbatch is computed here in the stage's last layer, adapter 1 elsewhere.
TEST(MetShapes, LayersThatAreSharedHaveShapesOfTheirOwn) {
    Microbatch microbatch = of_lengths({200, 300});
    microbatch.segments.push_back({AdapterId{1}, 0, {{0, 900, 450}}});
    const MeetingStage alone{0, middle};
    const MeetingStage sharing{1, middle, {AdapterSpan{}, AdapterSpan{0, 1}}};
    MetShapes met;
    EXPECT_EQ(met.meet(alone, stalls(), microbatch), 10.0);
    EXPECT_EQ(met.meet(sharing, stalls(), microbatch), 10.0 + 10.0);
    EXPECT_EQ(met.meet(sharing, stalls(), microbatch), 0.0);
    EXPECT_EQ(met.meet(alone, stalls(), of_lengths({200, 300})), 10.0);
    EXPECT_EQ(met.meet(sharing, stalls(), of_lengths({200, 300})), 0.0);
    const MeetingStage without{2, middle, {AdapterSpan{7, 9}, AdapterSpan{}}};
    EXPECT_EQ(met.meet(without, stalls(), microbatch), 10.0);
}

TEST(MetShapes, TheHeadTakesSoManyTargetsAtATime) {
    MetShapes met;
    const NewShapeLine line{100.0, 0.0, 0};
    EXPECT_EQ(met.meet_targets(0, 1000, 1000, line), 100.0);
    EXPECT_EQ(met.meet_targets(0, 2100, 1000, line), 100.0);  // the last 100
    EXPECT_EQ(met.meet_targets(0, 1070, 1000, line), 0.0);
    EXPECT_EQ(met.meet_targets(0, 3500, 1000, line), 100.0);
    EXPECT_EQ(met.meet_targets(0, 300, 0, line), 0.0);
}

TEST(MetShapes, FirstOnesTakeLonger) {
    MetShapes met;
    const NewShapeLine cold{1.0, 12.0, 0};
    EXPECT_EQ(met.meet_targets(0, 64, 1000, cold), 13.0);
    EXPECT_EQ(met.meet_targets(0, 128, 1000, cold), 7.0);
    EXPECT_EQ(met.meet_targets(0, 120, 1000, cold), 0.0);
    EXPECT_EQ(met.meet_targets(0, 192, 1000, cold), 5.0);
    EXPECT_EQ(met.meet_targets(1, 64, 1000, cold), 13.0);  // on another stage
    MetShapes warm;
    EXPECT_EQ(warm.meet_targets(0, 64, 1000, {1.0, 12.0, 5}), 3.0);
}

TEST(MetShapes, MoreRowsTakeLonger) {
    MetShapes met;
    HostCosts host;
    host.new_rows.per_row = 0.5;
    EXPECT_EQ(met.meet({0, middle}, host, of_lengths({60, 60})), 64.0);  // as 128 rows do
    EXPECT_EQ(met.meet_rows(0, 121, 16, host.new_rows), 0.0);
    EXPECT_EQ(met.meet_rows(0, 129, 16, host.new_rows), 96.0);
    EXPECT_EQ(met.meet_rows(0, 129, 256, host.new_rows), 0.0);
    EXPECT_EQ(met.meet_rows(0, 129, 257, host.new_rows), 96.0);
    EXPECT_EQ(met.meet_rows(0, 129, 0, host.new_rows), 96.0);
}

TEST(MetShapes, MixedLengthsHaveFewClasses) {
    MetShapes met;
    const NewShapeLine counted{1.0, 0.0, 0};
    double classes = 0.0;
    for (std::int64_t tokens = 4200; tokens <= 8192; tokens += 37) {
        classes += met.meet_rows(0, tokens, 64, counted);
    }
    EXPECT_EQ(classes, 4.0);
    for (std::int64_t tokens = 1; tokens <= 8192; tokens += 13) {
        classes += met.meet_rows(0, tokens, 64 + tokens % 192, counted);
    }
    EXPECT_EQ(classes, 36.0);
}

TEST(MetShapes, NothingWithoutCosts) {
    MetShapes met;
    EXPECT_EQ(met.meet({0, last}, {}, of_lengths({200, 300})), 0.0);
    EXPECT_EQ(met.meet({0, last}, stalls(), {}), 0.0);
}

}  // namespace
}  // namespace loratrain

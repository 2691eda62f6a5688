#include "measure/start_shapes.h"

#include <gtest/gtest.h>

#include "base/wire.h"

namespace loratrain {
namespace {

constexpr std::int64_t head_rows = 1000;

Microbatch of_tokens(std::int32_t tokens, std::int32_t targets, std::int32_t width = 16) {
    Microbatch microbatch;
    microbatch.segments.push_back({AdapterId{0}, 0, {{0, tokens, targets}}});
    microbatch.columns.augmented = width > 0;
    microbatch.columns.width = width;
    return microbatch;
}

StartWindow of(const std::vector<Microbatch>& microbatches) {
    return {microbatches, {{0, head_rows}}};
}
StartWindow of(const std::vector<Microbatch>&&) = delete;  // would end before the window

TEST(StartShapes, AreThoseUnlikeAllBefore) {
    const std::vector<Microbatch> first{of_tokens(300, 100), of_tokens(310, 105),
                                        of_tokens(300, 300)};
    const std::vector<Microbatch> second{of_tokens(700, 100), of_tokens(300, 100, 300)};
    const std::vector<StartWindow> replicas{of(first), of(second)};
    const std::vector<StartShape> wanted{
        {300, 16, 100}, {700, 16, 0}, {300, 300, 0}, {300, 16, 300}};
    EXPECT_EQ(start_shapes(replicas, head_rows), wanted);
    EXPECT_EQ(from_wire<std::vector<StartShape>>(to_wire(wanted), ""), wanted);
}

TEST(StartShapes, OnesWithoutAHeadHaveNoTargets) {
    const std::vector<Microbatch> microbatches{of_tokens(300, 100), of_tokens(300, 300, 0)};
    const std::vector<StartWindow> replicas{of(microbatches)};
    const std::vector<StartShape> wanted{{300, 16, 0}, {300, 0, 0}};
    EXPECT_EQ(start_shapes(replicas, 0), wanted);
}

/// Two stages share a layer: adapter 0 is computed in it by the first, adapter 1 by the second.
TEST(StartShapes, AreOfPartsToo) {
    Microbatch both = of_tokens(300, 100);
    both.segments.push_back({AdapterId{1}, 0, {{0, 700, 90}}});
    const std::vector<Microbatch> microbatches{both, of_tokens(290, 95)};
    StartWindow window = of(microbatches);
    window.stages = {{4, 0, {AdapterSpan{}, AdapterSpan{0, 1}}},
                     {5, head_rows, {AdapterSpan{1, 9}, AdapterSpan{}}}};
    const std::vector<StartShape> wanted{
        {1000, 16, 190}, {300, 16, 0, 4}, {700, 16, 0, 5}, {290, 16, 95}};
    const std::vector<StartShape> shapes = start_shapes({&window, 1}, head_rows);
    EXPECT_EQ(shapes, wanted);
    EXPECT_EQ(from_wire<std::vector<StartShape>>(to_wire(shapes), ""), shapes);
    EXPECT_EQ(shapes_of_stage(shapes, 4),
              (std::vector<StartShape>{wanted[0], wanted[1], wanted[3]}));
    MetShapes met;
    meet(met, window.stages[1], shapes);
    HostCosts stalls;
    stalls.new_rows.each = 1.0;
    EXPECT_EQ(met.meet(window.stages[1], stalls, both), 0.0);
    EXPECT_EQ(met.meet({4, 0, {AdapterSpan{0, 1}, AdapterSpan{}}}, stalls, both), 2.0);
    std::vector<StartShape> more = shapes;
    add_possible(more, 2000, head_rows);
    EXPECT_EQ(more, shapes);  // two classes of tokens and a part's
}

TEST(StartShapes, OfMixedLengthsAreAllThatLaterRoundsMayHave) {
    std::vector<StartShape> shapes{{300, 16, 100}, {700, 16, 0}, {450, 16, 300}};
    std::vector<StartShape> wanted = shapes;
    add_possible(shapes, 800, 1000);
    for (const std::int64_t tokens : {800, 768, 640, 576, 448, 384}) {
        wanted.push_back({tokens, 16, 0});
    }
    EXPECT_EQ(shapes, wanted);  // of targets there are no three classes
    add_possible(shapes, 800, 1000);
    EXPECT_EQ(shapes, wanted);
    shapes = {{300, 16, 100}, {300, 16, 300}, {300, 16, 1100}};
    add_possible(shapes, 800, 400);
    const std::vector<StartShape> of_targets{{300, 16, 100}, {300, 16, 300}, {300, 16, 1100}};
    EXPECT_EQ(shapes, of_targets);  // 1100 are 400, 400 and 300
    shapes = {{300, 16, 100}, {300, 16, 300}, {300, 16, 350}};
    add_possible(shapes, 800, 400);
    EXPECT_EQ(shapes.size(), 3U + 3U);  // 400, 256 and 192
    EXPECT_EQ(shapes.back(), (StartShape{300, 16, 192}));
}

TEST(StartShapes, OfEqualLengthsAreNoOthers) {
    std::vector<StartShape> shapes{{800, 16, 800}, {200, 16, 200}};
    const std::vector<StartShape> wanted = shapes;
    add_possible(shapes, 800, 1000);
    EXPECT_EQ(shapes, wanted);
    shapes.clear();
    add_possible(shapes, 800, 0);
    EXPECT_TRUE(shapes.empty());
}

TEST(StartShapes, AreMetWhenTrainingBegins) {
    const std::vector<Microbatch> microbatches{of_tokens(300, 100), of_tokens(700, 90)};
    const std::vector<StartWindow> replicas{of(microbatches)};
    HostCosts stalls;
    stalls.new_rows.each = 1.0;
    stalls.new_targets.each = 10.0;
    MetShapes met;
    const auto shapes = start_shapes(replicas, head_rows);
    meet(met, {1, head_rows}, {shapes.data(), 1});
    EXPECT_EQ(met.meet({1, head_rows}, stalls, replicas[0].microbatches[0]), 0.0);
    EXPECT_EQ(met.meet({1, head_rows}, stalls, replicas[0].microbatches[1]), 1.0);
    EXPECT_EQ(met.meet({0, head_rows}, stalls, replicas[0].microbatches[0]), 11.0);
}

}  // namespace
}  // namespace loratrain

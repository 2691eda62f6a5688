#include "measure/start_shapes.h"

#include <gtest/gtest.h>

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

Window of(const std::vector<Microbatch>& microbatches) {
    Window window;
    window.microbatches = microbatches;
    return window;
}

TEST(StartShapes, AreThoseUnlikeAllBefore) {
    const std::vector<Window> replicas{
        of({of_tokens(300, 100), of_tokens(310, 105), of_tokens(300, 300)}),
        of({of_tokens(700, 100), of_tokens(300, 100, 80)})};
    const std::vector<StartShape> wanted{
        {300, 16, 100}, {700, 16, 0}, {300, 80, 0}, {300, 16, 300}};
    EXPECT_EQ(start_shapes(replicas, head_rows), wanted);
    EXPECT_EQ(start_shapes_from_text(to_text(wanted)), wanted);
    EXPECT_TRUE(start_shapes_from_text(to_text(std::vector<StartShape>{})).empty());
}

TEST(StartShapes, OnesWithoutAHeadHaveNoTargets) {
    const std::vector<Window> replicas{of({of_tokens(300, 100), of_tokens(300, 300, 0)})};
    const std::vector<StartShape> wanted{{300, 16, 0}, {300, 0, 0}};
    EXPECT_EQ(start_shapes(replicas, 0).size(), 1U);  // no columns are of one tile with few
    EXPECT_EQ(start_shapes(replicas, 0).front(), wanted.front());
}

TEST(StartShapes, AreMetWhenTrainingBegins) {
    const std::vector<Window> replicas{of({of_tokens(300, 100), of_tokens(700, 90)})};
    HostCosts stalls;
    stalls.new_rows.each = 1.0;
    stalls.new_targets.each = 10.0;
    MetShapes met;
    const auto shapes = start_shapes(replicas, head_rows);
    meet(met, 1, head_rows, {shapes.data(), 1});
    EXPECT_EQ(met.meet(1, head_rows, stalls, replicas[0].microbatches[0]), 0.0);
    EXPECT_EQ(met.meet(1, head_rows, stalls, replicas[0].microbatches[1]), 1.0);
    EXPECT_EQ(met.meet(0, head_rows, stalls, replicas[0].microbatches[0]), 11.0);
}

}  // namespace
}  // namespace loratrain

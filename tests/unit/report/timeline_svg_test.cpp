#include "report/timeline_svg.h"

#include <gtest/gtest.h>

#include "support/occurrences.h"

namespace loratrain {
namespace {

using test::occurrences;

TraceSpan span(std::int32_t rank, const std::string& category, double start, double end,
               const std::vector<TraceShare>& shares = {{"a", 10}}) {
    return {rank, 0, category + " 7", category, start, end, share_args(shares)};
}

std::vector<TraceSpan> two_ranks() {
    return {span(0, "forward", 10.0, 11.0),
            span(0, "backward", 13.0, 15.0),
            span(1, "forward", 11.0, 12.0, {{"a", 10}, {"b", 30}}),
            span(1, "backward", 12.0, 14.0, {{"a", 10}, {"b", 30}}),
            span(1, "step", 14.0, 14.001),
            {1, 1, "wait", "wait", 10.0, 11.0, {}}};
}

}  // namespace

TEST(TimelineSvg, ShowsARowPerRankAndABandPerAdapter) {
    const auto spans = two_ranks();
    const TimeRange range = first_stretch(spans);
    EXPECT_DOUBLE_EQ(range.from, 10.0);
    EXPECT_DOUBLE_EQ(range.to, 15.0);
    const std::string svg = timeline_svg(spans, range, "A <title>");
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_EQ(occurrences(svg, "<g><title>"), 5U);
    EXPECT_NE(svg.find("A &lt;title&gt;"), std::string::npos);
    EXPECT_NE(svg.find(">rank 1</text>"), std::string::npos);
    EXPECT_NE(svg.find(">40.0%</text>"), std::string::npos);
    // 5 s are 1098 wide: b's forward is 219.6 less a gap, and three quarters of 30 high.
    EXPECT_NE(svg.find("width=\"219.00\" height=\"22.50\" fill=\"#f3bd96\""), std::string::npos);
    EXPECT_NE(svg.find("width=\"438.60\" height=\"22.50\" fill=\"#d55e00\""), std::string::npos);
    EXPECT_NE(svg.find("adapters: a 10, b 30"), std::string::npos);
    EXPECT_EQ(svg.find("<script"), std::string::npos);
    EXPECT_EQ(svg.find("href"), std::string::npos);
}

TEST(TimelineSvg, IdleIsWhatIsNotComputed) {
    const auto spans = two_ranks();
    EXPECT_DOUBLE_EQ(idle_share(spans, 0, {10.0, 15.0}), 0.4);
    EXPECT_DOUBLE_EQ(idle_share(spans, 0, {10.5, 11.5}), 0.5);
    EXPECT_DOUBLE_EQ(idle_share(spans, 7, {10.0, 15.0}), 1.0);
    EXPECT_DOUBLE_EQ(idle_share(spans, 0, {10.0, 10.0}), 0.0);
}

TEST(TimelineSvg, ShowsOnlyTheStretch) {
    std::vector<TraceSpan> spans;
    for (int i = 0; i < 50; ++i) spans.push_back(span(0, "forward", i, i + 1));
    const TimeRange range = first_stretch(spans, 10);
    EXPECT_DOUBLE_EQ(range.to, 10.0);
    EXPECT_EQ(occurrences(timeline_svg(spans, range, ""), "<g><title>"), 10U);
}

TEST(TimelineSvg, ManyAdaptersHaveAShortLegend) {
    std::vector<TraceSpan> spans;
    for (int i = 0; i < 30; ++i) {
        spans.push_back(span(0, "forward", i, i + 1, {{"adapter" + std::to_string(i), 1}}));
    }
    const std::string svg = timeline_svg(spans, first_stretch(spans), "");
    EXPECT_NE(svg.find("and 14 adapters more"), std::string::npos);
    EXPECT_NE(svg.find(">adapter15</text>"), std::string::npos);
    EXPECT_EQ(svg.find(">adapter16</text>"), std::string::npos);
}

TEST(TimelineSvg, ColoursFollowTheGivenOrder) {
    const auto spans = two_ranks();
    const std::string svg = timeline_svg(spans, first_stretch(spans), "", {"c", "b"});
    EXPECT_NE(svg.find("height=\"22.50\" fill=\"#d55e00\""), std::string::npos);  // b
    EXPECT_NE(svg.find("height=\"7.50\" fill=\"#009e73\""), std::string::npos);   // a
}

TEST(TimelineSvg, NothingIsAPictureToo) {
    EXPECT_NE(timeline_svg({}, first_stretch({}), "").find("</svg>"), std::string::npos);
}

TEST(PlanTrace, NamesWhatAStageDid) {
    Job job;
    job.adapters.resize(2);
    job.adapters[0].name = "a";
    job.adapters[1].name = "b";
    Plan plan;
    plan.replicas.resize(1);
    plan.replicas[0].stages = {{3, 0, 1, true, true}};
    Timeline timeline;
    timeline.microbatches = {
        {{{AdapterId{1}, 4, {{0, 30}}}, {AdapterId{0}, 2, {{1, 10}, {2, 5}}}}}};
    timeline.batches.resize(1);
    timeline.batches[0].adapter = AdapterId{1};
    timeline.batches[0].step = 4;
    timeline.stages = {{{ActionKind::forward, 0, -1, 0.0, 1.0},
                        {ActionKind::backward, 0, -1, 1.0, 3.0},
                        {ActionKind::step, -1, 0, 3.0, 4.0}}};
    const std::vector<TraceSpan> spans = trace_of(job, plan, timeline);
    ASSERT_EQ(spans.size(), 3U);
    EXPECT_EQ(spans[0].rank, 3);
    EXPECT_EQ(spans[0].name, "forward 0");
    EXPECT_EQ(spans[1].category, "backward");
    EXPECT_DOUBLE_EQ(spans[1].end_s, 3.0);
    EXPECT_EQ(spans[1].args, share_args({{"b", 30}, {"a", 15}}));
    EXPECT_EQ(spans[2].name, "step b 5");
}

}  // namespace loratrain

#include "report/line_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/occurrences.h"

namespace loratrain {
namespace {

using test::occurrences;

const double nan_value = std::numeric_limits<double>::quiet_NaN();

std::vector<Point> line(std::size_t points) {
    std::vector<Point> all;
    for (std::size_t i = 0; i < points; ++i) {
        all.push_back({static_cast<double>(i), 2.0 + std::sin(static_cast<double>(i))});
    }
    return all;
}

LineChart chart_of(std::vector<Series> series) {
    LineChart chart;
    chart.title = "T";
    chart.series = std::move(series);
    return chart;
}

TEST(LineChart, CornersOfTheFrame) {
    const std::string svg = to_svg(chart_of({{"a", 3, {{0, 0}, {10, 5}}}}));
    EXPECT_NE(svg.find("<path class=\"line c3\" d=\"M54.0 212.0L448.0 10.0\"/>"), std::string::npos)
        << svg;
}

TEST(LineChart, ALineBreaksWhereItIsNotFinite) {
    const std::string svg =
        to_svg(chart_of({{"a", 0, {{0, 1}, {1, 2}, {2, nan_value}, {3, 1}, {4, 2}}}}));
    const std::string path = svg.substr(svg.find(" d=\""));
    EXPECT_EQ(occurrences(path.substr(0, path.find("/>")), "M"), 2U);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(LineChart, OnePointIsADot) {
    const std::string svg = to_svg(chart_of({{"only", 0, {{3, 1}}}}));
    EXPECT_EQ(occurrences(svg, "<circle"), 1U);
    EXPECT_NE(svg.find("<title>only: 1 at 3</title>"), std::string::npos) << svg;
}

TEST(LineChart, LogarithmIsSaidAtTheAxis) {
    LineChart chart = chart_of({{"a", 0, {{0, 0.01}, {1, 10}}}});
    chart.y_label = "loss";
    EXPECT_EQ(to_svg(chart).find("(log)"), std::string::npos);
    chart.logarithm = true;
    EXPECT_NE(to_svg(chart).find("loss (log)"), std::string::npos);
    chart.series[0].points[0].y = 5;
    EXPECT_EQ(to_svg(chart).find("(log)"), std::string::npos);
}

TEST(LineChart, SmoothedOnlyWithManyPoints) {
    LineChart chart = chart_of({{"a", 0, line(29)}});
    chart.smooth = true;
    EXPECT_EQ(occurrences(to_svg(chart), "<path"), 1U);
    chart.series[0].points = line(30);
    EXPECT_EQ(occurrences(to_svg(chart), "<path"), 2U);
}

TEST(LineChart, TextIsEscaped) {
    LineChart chart = chart_of({{"<b>", 0, {{1, 1}}}});
    chart.title = "a\"&<script>";
    const std::string svg = to_svg(chart);
    EXPECT_EQ(svg.find("<script"), std::string::npos);
    EXPECT_EQ(svg.find("<b>"), std::string::npos);
    EXPECT_NE(svg.find("a&quot;&amp;&lt;script&gt;"), std::string::npos);
}

TEST(LineChart, WithoutPointsStillAFrame) {
    const std::string svg = to_svg(chart_of({}));
    EXPECT_EQ(occurrences(svg, "<path"), 0U);
    EXPECT_GE(occurrences(svg, "class=\"grid\""), 2U);
}

TEST(RunningMean, IsCentredAndKeepsEnds) {
    std::vector<Point> points = line(80);
    for (Point& point : points) point.y = 3.0 * point.x;
    const std::vector<Point> means = running_mean(points, false);
    ASSERT_EQ(means.size(), points.size());
    for (std::size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(means[i].y, points[i].y, 1e-9);
}

TEST(RunningMean, GeometricMeanOfNeighbours) {
    const std::vector<Point> means = running_mean({{0, 1}, {1, 4}, {2, 16}, {3, nan_value}}, true);
    ASSERT_EQ(means.size(), 3U);
    EXPECT_DOUBLE_EQ(means[0].y, 1.0);
    EXPECT_NEAR(means[1].y, 4.0, 1e-12);
    EXPECT_NEAR(running_mean({{0, 1}, {1, 4}, {2, 16}}, false)[1].y, 7.0, 1e-12);
}

TEST(Thinned, KeepsEndsAndExtremes) {
    std::vector<Point> points = line(10000);
    points[4321].y = 99.0;
    points[8765].y = -99.0;
    const std::vector<Point> kept = thinned(points, 600);
    EXPECT_LE(kept.size(), 600U);
    EXPECT_GE(kept.size(), 500U);
    EXPECT_EQ(kept.front().x, 0.0);
    EXPECT_EQ(kept.back().x, 9999.0);
    bool highest = false;
    bool lowest = false;
    for (std::size_t i = 0; i < kept.size(); ++i) {
        highest = highest || kept[i].y == 99.0;
        lowest = lowest || kept[i].y == -99.0;
        if (i > 0) {
            EXPECT_GT(kept[i].x, kept[i - 1].x);
        }
    }
    EXPECT_TRUE(highest && lowest);
    EXPECT_EQ(thinned(line(600), 600).size(), 600U);
}

}  // namespace
}  // namespace loratrain

#include "report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "report/chart_axis.h"
#include "report/html.h"

namespace loratrain {

namespace {

constexpr double width = 460.0;
constexpr double height = 250.0;
constexpr double left = 54.0;
constexpr double right = 12.0;
constexpr double top = 10.0;
constexpr double bottom = 38.0;
constexpr std::size_t most_points = 600;
constexpr std::size_t most_markers = 60;
constexpr std::size_t fewest_smoothed = 30;

std::string number(double value) {
    return format_fixed(value, 1);
}

/// Maps values to the drawing.
struct Frame {
    ChartAxis x;
    ChartAxis y;
    double px(double value) const { return left + x.position(value) * (width - left - right); }
    double py(double value) const {
        return height - bottom - y.position(value) * (height - top - bottom);
    }
};

Frame frame_of(const LineChart& chart) {
    std::vector<double> xs;
    std::vector<double> ys;
    for (const Series& series : chart.series) {
        for (const Point& point : series.points) {
            if (!std::isfinite(point.y)) continue;
            xs.push_back(point.x);
            ys.push_back(point.y);
        }
    }
    const bool logarithm = chart.logarithm && ChartAxis::wants_logarithm(ys);
    ChartAxis x(xs, false);
    x.fit_tightly(xs);
    return {x, ChartAxis(ys, logarithm, chart.from_zero)};
}

std::string line_markup(double x1, double y1, double x2, double y2, const char* css) {
    return cat("<line class=\"", css, "\" x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"",
               number(x2), "\" y2=\"", number(y2), "\"/>\n");
}

std::string text_markup(double x, double y, const char* anchor, const std::string& text,
                        const std::string& more = "") {
    return cat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"",
               more, ">", html::escape(text), "</text>\n");
}

std::string axes_markup(const LineChart& chart, const Frame& frame) {
    std::string markup;
    for (const Tick& tick : frame.y.ticks()) {
        const double y = frame.py(tick.value);
        markup += line_markup(left, y, width - right, y, tick.label.empty() ? "minor" : "grid");
        if (!tick.label.empty()) markup += text_markup(left - 6, y + 4, "end", tick.label);
    }
    const double floor = height - bottom;
    for (const Tick& tick : frame.x.ticks()) {
        const double x = frame.px(tick.value);
        markup += line_markup(x, floor, x, floor + 4, "axis");
        const bool at_edge = x > width - right - 10.0;
        markup += text_markup(x, floor + 16, at_edge ? "end" : "middle", tick.label);
    }
    markup += line_markup(left, floor, width - right, floor, "axis");
    const double middle = left + (width - left - right) / 2;
    markup += text_markup(middle, height - 5, "middle", chart.x_label, " class=\"label\"");
    const double y = top + (height - top - bottom) / 2;
    const std::string turn = cat(" class=\"label\" transform=\"rotate(-90 12 ", number(y), ")\"");
    const std::string label = chart.y_label + (frame.y.logarithmic() ? " (log)" : "");
    return markup + text_markup(12, y, "middle", label, turn);
}

std::string path_markup(const Frame& frame, const std::vector<Point>& points, std::size_t color,
                        const char* css) {
    std::string path;
    bool drawing = false;
    for (const Point& point : thinned(points, most_points)) {
        const bool drawable = std::isfinite(point.y) && (!frame.y.logarithmic() || point.y > 0);
        if (drawable) {
            path +=
                cat(drawing ? "L" : "M", number(frame.px(point.x)), " ", number(frame.py(point.y)));
        }
        drawing = drawable;
    }
    if (path.empty()) return "";
    return cat("<path class=\"", css, " c", color % palette_size, "\" d=\"", path, "\"/>\n");
}

std::string marker_markup(const Frame& frame, const Series& series) {
    std::string markup;
    for (const Point& point : series.points) {
        if (!std::isfinite(point.y) || (frame.y.logarithmic() && point.y <= 0)) continue;
        markup += cat("<circle class=\"c", series.color % palette_size, "\" cx=\"",
                      number(frame.px(point.x)), "\" cy=\"", number(frame.py(point.y)),
                      "\" r=\"2.6\"><title>", html::escape(series.name), ": ", tick_label(point.y),
                      " at ", tick_label(point.x), "</title></circle>\n");
    }
    return markup;
}

std::string series_markup(const LineChart& chart, const Frame& frame, const Series& series) {
    const std::size_t count = series.points.size();
    if (chart.smooth && count >= fewest_smoothed) {
        return path_markup(frame, series.points, series.color, "raw") +
               path_markup(frame, running_mean(series.points, frame.y.logarithmic()), series.color,
                           "line");
    }
    std::string markup = path_markup(frame, series.points, series.color, "line");
    if ((chart.markers && count <= most_markers) || count == 1) {
        markup += marker_markup(frame, series);
    }
    return markup;
}

}  // namespace

std::vector<Point> running_mean(const std::vector<Point>& points, bool geometric) {
    std::vector<Point> finite;
    std::copy_if(points.begin(), points.end(), std::back_inserter(finite),
                 [&](const Point& p) { return std::isfinite(p.y) && (!geometric || p.y > 0); });
    std::vector<double> sums{0.0};
    for (const Point& p : finite) sums.push_back(sums.back() + (geometric ? std::log(p.y) : p.y));
    const std::size_t reach = std::max<std::size_t>(1, finite.size() / 40);
    for (std::size_t i = 0; i < finite.size(); ++i) {
        const std::size_t half = std::min({reach, i, finite.size() - 1 - i});
        const double sum = sums[i + half + 1] - sums[i - half];
        const double mean = sum / static_cast<double>(2 * half + 1);
        finite[i].y = geometric ? std::exp(mean) : mean;
    }
    return finite;
}

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
    if (points.size() <= most || most < 4) return points;
    const std::size_t stretches = (most - 2) / 2;
    std::vector<Point> kept{points.front()};
    const auto below = [](const Point& a, const Point& b) { return a.y < b.y; };
    for (std::size_t s = 0; s < stretches; ++s) {
        const auto inner = points.size() - 2;
        const auto begin = points.begin() + 1 + static_cast<std::ptrdiff_t>(s * inner / stretches);
        const auto end =
            points.begin() + 1 + static_cast<std::ptrdiff_t>((s + 1) * inner / stretches);
        if (begin == end) continue;
        const auto [low, high] = std::minmax_element(begin, end, below);
        kept.push_back(*std::min(low, high));
        if (low != high) kept.push_back(*std::max(low, high));
    }
    kept.push_back(points.back());
    return kept;
}

std::string to_svg(const LineChart& chart) {
    const Frame frame = frame_of(chart);
    std::string markup =
        cat("<figure><figcaption>", html::escape(chart.title), "</figcaption>\n<svg viewBox=\"0 0 ",
            width, " ", height, "\" role=\"img\" aria-label=\"", html::escape(chart.title), "\">\n",
            axes_markup(chart, frame));
    for (const Series& series : chart.series) markup += series_markup(chart, frame, series);
    return markup + "</svg></figure>\n";
}

}  // namespace loratrain

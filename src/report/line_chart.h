#pragma once

#include <string>
#include <vector>

namespace loratrain {

struct Point {
    double x = 0.0;
    double y = 0.0;
};

/// Line charts as SVG.

/// One line of a chart. Points are in order of x; a y that is not finite breaks the line.
struct Series {
    std::string name;
    std::size_t color = 0;  ///< index into the page's palette (classes c0 .. c7)
    std::vector<Point> points;
};

struct LineChart {
    std::string title;
    std::string x_label;
    std::string y_label;
    std::vector<Series> series;
    bool logarithm = false;  ///< if the values span enough (ChartAxis::wants_logarithm)
    bool smooth = false;     ///< a faint line of the values and a strong one of their running mean
    bool markers = false;    ///< a dot at each point, unless there are too many
    bool from_zero = false;
};

inline constexpr std::size_t palette_size = 8;

/// The chart as one <figure> with inline SVG, colours by CSS class; names are escaped. Every line
/// is thinned to at most 600 points that keep the highest and the lowest of each stretch.
std::string to_svg(const LineChart& chart);

/// Replaces every finite point by the mean of a window around it. The window is a twentieth of the
/// points, with as many before as after the point, so it is shorter near the ends. `geometric`: the
/// mean of logarithms of values above 0.
std::vector<Point> running_mean(const std::vector<Point>& points, bool geometric);

/// At most about `most` points, keeping first, last and each stretch's extremes.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most);

}  // namespace loratrain

#include "report/chart_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace loratrain {

namespace {

constexpr double wanted_ticks = 6.0;
constexpr double rounding = 1e-9;

struct AxisRange {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    bool empty() const { return low > high; }
};

AxisRange range_of(const std::vector<double>& values) {
    AxisRange range;
    for (const double value : values) {
        if (!std::isfinite(value)) continue;
        range.low = std::min(range.low, value);
        range.high = std::max(range.high, value);
    }
    return range;
}

/// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= least * (1.0 - rounding)) return factor * power;
    }
    return 10.0 * power;
}

/// 1-2-5 numbers of one decade after another, from at most `low` to at least `high`.
std::vector<double> steps_between(double low, double high) {
    std::vector<double> steps;
    for (auto decade = static_cast<int>(std::floor(std::log10(low))) - 1;; ++decade) {
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double value = factor * std::pow(10.0, decade);
            if (value <= low * (1.0 + rounding)) steps.clear();
            steps.push_back(value);
            if (value >= high * (1.0 - rounding) && steps.size() > 1) return steps;
        }
    }
}

}  // namespace

bool ChartAxis::wants_logarithm(const std::vector<double>& values) {
    const AxisRange range = range_of(values);
    return !range.empty() && range.low > 0 && range.high / range.low >= logarithmic_ratio;
}

ChartAxis::ChartAxis(const std::vector<double>& values, bool logarithmic, bool from_zero) {
    AxisRange range = range_of(values);
    if (range.empty()) return;
    logarithmic_ = logarithmic && range.low > 0;
    if (logarithmic_) {
        const std::vector<double> steps = steps_between(range.low, range.high);
        low_ = steps.front();
        high_ = steps.back();
        return;
    }
    if (range.low > 0 && (from_zero || range.low < 0.25 * range.high)) range.low = 0.0;
    double extent = range.high - range.low;
    if (extent <= rounding * std::max(std::abs(range.low), std::abs(range.high)) || extent == 0) {
        extent = std::max(1e-12, 0.2 * std::abs(range.high));
        if (range.high == 0) extent = 1.0;
        range = {range.low - (range.low == 0 ? 0.0 : extent / 2), range.high + extent / 2};
        extent = range.high - range.low;
    }
    step_ = round_step(extent / wanted_ticks);
    low_ = step_ * std::floor(range.low / step_ + rounding);
    high_ = step_ * std::ceil(range.high / step_ - rounding);
}

void ChartAxis::fit_tightly(const std::vector<double>& values) {
    const AxisRange range = range_of(values);
    if (range.empty() || range.low >= range.high) return;
    low_ = std::max(low_, range.low);
    high_ = std::min(high_, range.high);
}

double ChartAxis::position(double value) const {
    if (logarithmic_) return std::log(value / low_) / std::log(high_ / low_);
    return (value - low_) / (high_ - low_);
}

std::vector<Tick> ChartAxis::ticks() const {
    return logarithmic_ ? logarithmic_ticks() : linear_ticks();
}

std::vector<Tick> ChartAxis::linear_ticks() const {
    std::vector<Tick> ticks;
    const double first = std::ceil(low_ / step_ - rounding);
    const auto count = static_cast<int>(std::floor(high_ / step_ + rounding) - first);
    for (int i = 0; i <= count; ++i) {
        double value = (first + i) * step_;
        if (std::abs(value) < step_ * rounding) value = 0.0;
        ticks.push_back({value, tick_label(value)});
    }
    return ticks;
}

std::vector<Tick> ChartAxis::logarithmic_ticks() const {
    const std::vector<double> steps = steps_between(low_, high_);
    const bool only_decades = steps.size() > 2 * wanted_ticks;
    const auto stride =
        static_cast<int>(std::max(1.0, std::ceil(std::log10(high_ / low_) / wanted_ticks)));
    std::vector<Tick> ticks;
    for (const double value : steps) {
        const double decade = std::log10(value);
        const auto whole = static_cast<int>(std::lround(decade));
        const bool is_decade = std::abs(decade - whole) < rounding;
        const bool named = only_decades ? is_decade && whole % stride == 0 : true;
        ticks.push_back({value, named ? tick_label(value) : ""});
    }
    return ticks;
}

std::string tick_label(double value) {
    struct Unit {
        double factor;
        const char* suffix;
    };
    static constexpr std::array<Unit, 3> units{{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
    std::array<char, 32> text{};
    if (std::abs(value) >= 1e4 && std::abs(value) < 1e12) {
        for (const Unit& unit : units) {
            if (std::abs(value) < unit.factor) continue;
            std::snprintf(text.data(), text.size(), "%.3g%s", value / unit.factor, unit.suffix);
            return text.data();
        }
    }
    std::snprintf(text.data(), text.size(), "%.4g", value);
    if (value == 0 || std::abs(value) >= 1e-3) return text.data();
    const auto exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + rounding));
    std::snprintf(text.data(), text.size(), "%.3ge%d", value / std::pow(10.0, exponent), exponent);
    return text.data();
}

}  // namespace loratrain

#include <algorithm>
#include <functional>
#include <limits>

#include "base/text.h"
#include "report/line_chart.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

using SampleValue = std::function<std::optional<double>(const DeviceSample&)>;

/// Seconds during which the run trained, without the pauses between its starts. Those begin and end
/// as their samples say, and one whose ranks began apart by a little is one.
class TrainingTime {
  public:
    explicit TrainingTime(const std::vector<std::vector<DeviceSample>>& ranks) {
        std::vector<Start> spans;
        for (const auto& samples : ranks) {
            for (const DeviceSample& sample : samples) {
                spans.push_back({sample.time - sample.seconds, sample.time, 0.0});
            }
        }
        std::sort(spans.begin(), spans.end(),
                  [](const Start& a, const Start& b) { return a.begin < b.begin; });
        for (const Start& span : spans) {
            if (starts_.empty() || span.begin > starts_.back().end) {
                starts_.push_back(span);
                starts_.back().before = seconds_;
            }
            Start& start = starts_.back();
            start.end = std::max(start.end, span.end);
            seconds_ = start.before + start.end - start.begin;
        }
    }

    double seconds() const { return seconds_; }
    /// Of a sample that it was made of: its start, and the time before it.
    std::pair<std::size_t, double> at(const DeviceSample& sample) const {
        const auto after =
            std::upper_bound(starts_.begin(), starts_.end(), sample.time - sample.seconds,
                             [](double begin, const Start& start) { return begin < start.begin; });
        const Start& start = *std::prev(after);
        return {static_cast<std::size_t>(after - starts_.begin()),
                start.before + sample.time - start.begin};
    }

  private:
    struct Start {
        double begin = 0.0;
        double end = 0.0;
        double before = 0.0;  ///< seconds of training
    };
    std::vector<Start> starts_;
    double seconds_ = 0.0;
};

/// What the charts of a page have in common.
struct SampleCharts {
    const std::vector<std::vector<DeviceSample>>& ranks;
    TrainingTime time;
    bool minutes;
    std::size_t first = 0;  ///< rank; palette_size at most from it on

    std::size_t last() const { return std::min(first + palette_size, ranks.size()); }
    std::vector<Series> series_of(const SampleValue& value) const;
    std::string chart(const std::string& title, const char* unit, const SampleValue& value,
                      bool from_zero) const;
    std::string memory_chart(const std::string& title, const SampleValue& bytes) const;
};

/// A line ends with its start.
std::vector<Series> SampleCharts::series_of(const SampleValue& value) const {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    std::vector<Series> all;
    for (std::size_t rank = first; rank < last(); ++rank) {
        Series series{cat("rank ", rank), rank - first, {}};
        std::size_t start_before = 0;
        for (const DeviceSample& sample : ranks[rank]) {
            const std::optional<double> y = value(sample);
            if (!y) continue;
            const auto [start, seconds] = time.at(sample);
            const double x = seconds / (minutes ? 60.0 : 1.0);
            if (!series.points.empty() && start != start_before) series.points.push_back({x, none});
            series.points.push_back({x, *y});
            start_before = start;
        }
        if (!series.points.empty()) all.push_back(std::move(series));
    }
    return all;
}

std::string SampleCharts::chart(const std::string& title, const char* unit,
                                const SampleValue& value, bool from_zero) const {
    LineChart chart{title, minutes ? "minutes of training" : "seconds of training",
                    unit,  series_of(value),
                    false, false,
                    true,  from_zero};
    return chart.series.empty() ? "" : to_svg(chart);
}

std::string SampleCharts::memory_chart(const std::string& title, const SampleValue& bytes) const {
    constexpr double mib = 1 << 20;
    constexpr double gib = 1 << 30;
    double most = 0.0;
    for (std::size_t rank = first; rank < last(); ++rank) {
        for (const DeviceSample& sample : ranks[rank]) {
            most = std::max(most, bytes(sample).value_or(0.0));
        }
    }
    const double unit = most < gib ? mib : gib;
    return chart(
        title, most < gib ? "MiB" : "GiB",
        [&](const DeviceSample& sample) -> std::optional<double> {
            const std::optional<double> value = bytes(sample);
            if (!value) return std::nullopt;
            return *value / unit;
        },
        true);
}

std::string charts_markup(const SampleCharts& charts) {
    std::string markup = "<div class=\"legend\">";
    for (std::size_t rank = charts.first; rank < charts.last(); ++rank) {
        markup += cat("<span><i class=\"c", rank - charts.first, "\"></i>rank ", rank, "</span>\n");
    }
    markup += "</div>\n<div class=\"charts\">\n";
    markup += charts.memory_chart("Memory that the backend has allocated", [](const auto& sample) {
        return std::optional(static_cast<double>(sample.allocated_bytes));
    });
    markup += charts.memory_chart("Resident memory on the host", [](const auto& sample) {
        return std::optional(static_cast<double>(sample.resident_bytes));
    });
    markup += charts.memory_chart("Memory in use on the GPU",
                                  [](const auto& sample) -> std::optional<double> {
                                      if (!sample.gpu.used_bytes) return std::nullopt;
                                      return static_cast<double>(*sample.gpu.used_bytes);
                                  });
    markup += charts.chart(
        "GPU power", "W", [](const auto& sample) { return sample.gpu.watts; }, true);
    markup += charts.chart(
        "Clock of the multiprocessors", "MHz", [](const auto& sample) { return sample.gpu.sm_mhz; },
        false);
    markup += charts.chart(
        "GPU temperature", "\u00b0C", [](const auto& sample) { return sample.gpu.celsius; }, false);
    return markup + "</div>\n";
}

/// "" where no rank knows.
std::string slowdown_text(const std::vector<std::vector<DeviceSample>>& ranks) {
    double known = 0.0;
    double by_power = 0.0;
    double by_heat = 0.0;
    for (const auto& samples : ranks) {
        for (const DeviceSample& sample : samples) {
            if (!sample.gpu.slowed_by_power || !sample.gpu.slowed_by_heat) continue;
            known += 1.0;
            by_power += *sample.gpu.slowed_by_power ? 1.0 : 0.0;
            by_heat += *sample.gpu.slowed_by_heat ? 1.0 : 0.0;
        }
    }
    if (known <= 0.0) return "";
    return cat("<p>Clocks were lowered to stay within the power limit in ",
               format_fixed(100.0 * by_power / known, 1),
               "% of the measurements, and because of heat in ",
               format_fixed(100.0 * by_heat / known, 1), "%.</p>\n");
}

}  // namespace

std::string devices(const RunRecord& run) {
    if (run.samples.empty()) return "";
    const TrainingTime time(run.samples);
    SampleCharts charts{run.samples, time, time.seconds() > 600.0};
    std::string markup = "<h2>Memory and devices over time</h2>\n" + slowdown_text(run.samples);
    for (; charts.first < run.samples.size(); charts.first += palette_size) {
        if (run.samples.size() > palette_size) {
            markup += cat("<h3>Ranks ", charts.first, " to ", charts.last() - 1, "</h3>\n");
        }
        markup += charts_markup(charts);
    }
    if (run.plan && run.plan->memory.size() > run.samples.size()) {
        markup += cat("<p>Of the first ", run.samples.size(), " ranks.</p>\n");
    }
    return markup;
}

}  // namespace loratrain::report

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "report/html.h"
#include "report/line_chart.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

using Group = std::vector<AdapterId>;
using Value = std::function<std::optional<double>(const MetricsRow&)>;

/// Of a sweep: the best of each dataset, and the reference.
std::vector<std::pair<std::string, Group>> best_groups(const RunRecord& run) {
    const Job& job = run.job;
    std::vector<std::pair<std::string, Group>> groups;
    for (std::size_t d = 0; d < job.datasets.size(); ++d) {
        Group members;
        for (const AdapterResult& result : run.results) {  // best first
            const AdapterJob& adapter = job.adapter(result.adapter);
            const bool shown = adapter.trial ? members.size() < palette_size - 1
                                             : adapter.name == job.sweep->reference;
            if (index(adapter.dataset) == d && shown) members.push_back(result.adapter);
        }
        if (!members.empty()) groups.emplace_back("The best on " + job.datasets[d].name, members);
    }
    return groups;
}

/// Adapters that share charts: all when they are few, the best of a sweep,
/// else those of one dataset, in pieces.
std::vector<std::pair<std::string, Group>> groups_of(const RunRecord& run) {
    const Job& job = run.job;
    Group all;
    for (std::size_t i = 0; i < job.adapters.size(); ++i) all.push_back(static_cast<AdapterId>(i));
    if (all.size() <= palette_size) return {{"", all}};
    if (run.job.sweep) return best_groups(run);
    std::vector<std::pair<std::string, Group>> groups;
    for (std::size_t d = 0; d < job.datasets.size(); ++d) {
        Group members;
        std::copy_if(all.begin(), all.end(), std::back_inserter(members),
                     [&](AdapterId a) { return index(job.adapter(a).dataset) == d; });
        for (std::size_t first = 0; first < members.size(); first += palette_size) {
            const std::size_t last = std::min(first + palette_size, members.size());
            const std::string part =
                members.size() > palette_size
                    ? cat(", ", first + 1, " to ", last, " of ", members.size())
                    : "";
            groups.emplace_back("Dataset " + job.datasets[d].name + part,
                                Group(members.begin() + static_cast<std::ptrdiff_t>(first),
                                      members.begin() + static_cast<std::ptrdiff_t>(last)));
        }
    }
    return groups;
}

std::vector<Series> series_of(const RunRecord& run, const Group& group, const Value& value) {
    std::vector<Series> all;
    for (std::size_t i = 0; i < group.size(); ++i) {
        Series series{run.job.adapter(group[i]).name, i, {}};
        for (const MetricsRow& row : run.metrics[index(group[i])]) {
            if (const auto y = value(row)) {
                series.points.push_back({static_cast<double>(row.step), *y});
            }
        }
        if (!series.points.empty()) all.push_back(series);
    }
    return all;
}

std::string legend(const Job& job, const Group& group) {
    std::string markup = "<div class=\"legend\">";
    for (std::size_t i = 0; i < group.size(); ++i) {
        markup += cat("<span><i class=\"c", i, "\"></i>", html::escape(job.adapter(group[i]).name),
                      "</span>\n");
    }
    return markup + "</div>\n";
}

std::string chart_markup(const LineChart& chart) {
    return chart.series.empty() ? "" : to_svg(chart);
}

std::string group_charts(const RunRecord& run, const Group& group) {
    LineChart loss{"Training loss", "step", "loss", {}, true, true, false, false};
    loss.series = series_of(run, group, [](const MetricsRow& row) { return row.loss; });
    LineChart eval{"Eval loss", "step", "loss", {}, true, false, true, false};
    eval.series = series_of(run, group, [](const MetricsRow& row) { return row.eval_loss; });
    LineChart exact{"Exact match", "step", "%", {}, false, false, true, true};
    exact.series = series_of(run, group, [](const MetricsRow& row) -> std::optional<double> {
        if (!row.eval_exact_match) return std::nullopt;
        return 100.0 * *row.eval_exact_match;
    });
    LineChart accuracy{"Reward accuracy", "step", "%", {}, false, true, false, true};
    accuracy.series = series_of(run, group, [](const MetricsRow& row) -> std::optional<double> {
        if (!row.rewards_accuracies) return std::nullopt;
        return 100.0 * *row.rewards_accuracies;
    });
    LineChart reward{
        "Reward of the adapter's own texts", "step", "mean", {}, false, true, false, false};
    reward.series = series_of(run, group, [](const MetricsRow& row) { return row.reward; });
    LineChart rate{"Learning rate", "step", "learning rate", {}, false, false, false, true};
    rate.series = series_of(run, group, [](const MetricsRow& row) { return row.learning_rate; });
    LineChart norm{"Gradient norm before clipping", "step", "norm", {}, true, true, false, false};
    norm.series = series_of(run, group, [](const MetricsRow& row) { return row.grad_norm; });
    return "<div class=\"charts\">\n" + chart_markup(loss) + chart_markup(eval) +
           chart_markup(exact) + chart_markup(accuracy) + chart_markup(reward) +
           chart_markup(rate) + chart_markup(norm) + "</div>\n";
}

/// Tokens of all adapters per second of training time, in equal stretches of it.
std::vector<Point> throughput_points(const RunRecord& run) {
    constexpr std::size_t most_bins = 120;
    double end = 0.0;
    std::size_t steps = 0;
    for (const auto& rows : run.metrics) {
        for (const MetricsRow& row : rows) end = std::max(end, row.elapsed_seconds.value_or(0.0));
        steps = std::max(steps, rows.size());
    }
    const std::size_t bins = std::clamp<std::size_t>(steps / 5, 1, most_bins);
    if (end <= 0) return {};
    std::vector<double> tokens(bins, 0.0);
    for (const auto& rows : run.metrics) {
        for (const MetricsRow& row : rows) {
            if (!row.elapsed_seconds) continue;
            const double share = *row.elapsed_seconds / end * static_cast<double>(bins);
            const auto bin = std::min(bins - 1, static_cast<std::size_t>(share));
            tokens[bin] += row.tokens.value_or(0.0);
        }
    }
    const double width = end / static_cast<double>(bins);
    std::vector<Point> points;
    for (std::size_t b = 0; b < bins; ++b) {
        points.push_back({(static_cast<double>(b) + 0.5) * width, tokens[b] / width});
    }
    return points;
}

}  // namespace

std::string curves(const RunRecord& run) {
    std::string markup = "<h2>Curves</h2>\n";
    bool any = false;
    for (const auto& [title, group] : groups_of(run)) {
        any = any || std::any_of(group.begin(), group.end(),
                                 [&](AdapterId a) { return !run.metrics[index(a)].empty(); });
        if (!title.empty()) markup += "<h3>" + html::escape(title) + "</h3>\n";
        markup += legend(run.job, group) + group_charts(run, group);
    }
    return any ? markup : "<h2>Curves</h2>\n<p>No step has been recorded yet.</p>\n";
}

std::string throughput(const RunRecord& run) {
    std::vector<Point> points = throughput_points(run);
    if (points.empty()) return "";
    const bool minutes = points.back().x > 600.0;
    for (Point& point : points) point.x /= minutes ? 60.0 : 1.0;
    LineChart chart{"Tokens per second, all adapters together",
                    minutes ? "minutes of training" : "seconds of training",
                    "tokens/s",
                    {{"all", 0, points}},
                    false,
                    false,
                    false,
                    true};
    return "<h2>Throughput</h2>\n<div class=\"charts\">\n" + to_svg(chart) + "</div>\n";
}

}  // namespace loratrain::report

#include "report/report_page.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/status_text.h"

namespace loratrain {

namespace {

using html::Cell;
using html::number_cell;
using html::text_cell;
using Column = std::optional<double> MetricsRow::*;

/// An adapter of one of the runs.
struct AdapterPlace {
    std::size_t run = 0;
    AdapterId adapter{};
};
using Places = std::map<std::string, std::vector<AdapterPlace>>;

Places places_by_name(const std::vector<RunRecord>& runs) {
    Places places;
    for (std::size_t r = 0; r < runs.size(); ++r) {
        for (std::size_t a = 0; a < runs[r].job.adapters.size(); ++a) {
            const auto id = static_cast<AdapterId>(a);
            places[runs[r].job.adapter(id).name].push_back({r, id});
        }
    }
    return places;
}

/// Of a run's adapters together: what they trained on, and in what time.
struct Totals {
    double tokens = 0.0;
    double seconds = 0.0;
    std::uint64_t bytes = 0;  ///< allocated, of the rank that has most
};

Totals totals_of(const RunRecord& run) {
    Totals totals;
    for (const AdapterResult& result : run.results) {
        totals.tokens += result.summary.tokens;
        totals.seconds = std::max(totals.seconds, result.summary.seconds);
    }
    for (const MeasuredMemory& rank : run.memory) {
        totals.bytes = std::max(totals.bytes, rank.allocated);
    }
    return totals;
}

Cell optional_cell(const std::optional<double>& value, int decimals, double factor = 1.0) {
    return number_cell(value ? format_fixed(*value * factor, decimals) : "");
}

std::string color_key(std::size_t run) {
    return cat("<span class=\"legend\"><i class=\"c", run, "\"></i></span> ");
}

std::string runs_table(const std::vector<RunRecord>& runs) {
    std::vector<std::vector<Cell>> rows;
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const RunRecord& run = runs[r];
        const Totals totals = totals_of(run);
        const std::string ranks = run.status ? std::to_string(run.status->ranks) : "";
        const std::string speed =
            totals.seconds > 0 ? format_fixed(totals.tokens / totals.seconds, 0) : "";
        rows.push_back({html::markup_cell(color_key(r) + html::escape(run.dir)),
                        text_cell(run.status ? run_word(*run.status, run.pulse) : "not begun"),
                        number_cell(std::to_string(run.job.adapters.size())), number_cell(ranks),
                        number_cell(human_duration(totals.seconds)),
                        number_cell(format_fixed(totals.tokens, 0)), number_cell(speed),
                        number_cell(totals.bytes > 0 ? human_bytes(totals.bytes) : "")});
    }
    return html::table({text_cell("run"), text_cell("state"), number_cell("adapters"),
                        number_cell("ranks"), number_cell("training time"), number_cell("tokens"),
                        number_cell("tokens/s"), number_cell("memory of a rank")},
                       rows);
}

std::string adapters_table(const std::vector<RunRecord>& runs, const Places& places) {
    std::vector<std::vector<Cell>> rows;
    std::vector<AdapterJob> compared;
    for (const auto& [name, all] : places) {
        for (const AdapterPlace& place : all) {
            const RunRecord& run = runs[place.run];
            const auto found =
                std::find_if(run.results.begin(), run.results.end(),
                             [&](const AdapterResult& of) { return of.adapter == place.adapter; });
            if (found == run.results.end()) continue;
            const MetricsSummary& summary = found->summary;
            const AdapterJob& job = run.job.adapter(place.adapter);
            compared.push_back(job);
            std::vector<Cell>& row = rows.emplace_back(std::vector<Cell>{
                text_cell(name), html::markup_cell(color_key(place.run) + html::escape(run.dir)),
                text_cell(found->status)});
            const std::vector<Cell> keys = report::key_cells(job);
            row.insert(row.end(), keys.begin(), keys.end());
            row.push_back(number_cell(std::to_string(summary.steps)));
            row.push_back(optional_cell(train_loss(summary), 4));
            row.push_back(optional_cell(summary.last_eval_loss, 4));
            row.push_back(optional_cell(summary.last_exact_match, 1, 100.0));
        }
    }
    std::vector<Cell> head{text_cell("adapter"), text_cell("run"), text_cell("status")};
    const std::vector<Cell> keys = report::key_heads();
    head.insert(head.end(), keys.begin(), keys.end());
    for (const char* name : {"steps", "train loss", "eval loss"}) head.push_back(number_cell(name));
    head.push_back(number_cell(accuracy_name(compared) + " %"));
    return html::table(head, rows);
}

std::string chart(const std::vector<RunRecord>& runs, const std::vector<AdapterPlace>& places,
                  LineChart of, Column column) {
    for (const AdapterPlace& place : places) {
        const RunRecord& run = runs[place.run];
        Series series{run.dir, place.run, {}};
        for (const MetricsRow& row : run.metrics[index(place.adapter)]) {
            if (const auto& y = row.*column) {
                series.points.push_back({static_cast<double>(row.step), *y});
            }
        }
        if (!series.points.empty()) of.series.push_back(series);
    }
    return of.series.size() < 2 ? "" : to_svg(of);
}

std::string charts(const std::vector<RunRecord>& runs, const Places& places) {
    std::string markup;
    for (const auto& [name, all] : places) {
        if (all.size() < 2) continue;
        const std::string drawn =
            chart(runs, all, {"Training loss", "step", "loss", {}, true, true, false, false},
                  &MetricsRow::loss) +
            chart(runs, all, {"Eval loss", "step", "loss", {}, true, false, true, false},
                  &MetricsRow::eval_loss) +
            chart(runs, all,
                  {"Gradient norm before clipping", "step", "norm", {}, true, true, false, false},
                  &MetricsRow::grad_norm);
        if (drawn.empty()) continue;
        markup +=
            cat("<h3>", html::escape(name), "</h3>\n<div class=\"charts\">\n", drawn, "</div>\n");
    }
    return markup.empty() ? "<p>No adapter has the same name in two of the runs.</p>\n" : markup;
}

}  // namespace

std::string comparison_page(const std::vector<RunRecord>& runs, double now) {
    LORATRAIN_CHECK(runs.size() >= 2 && runs.size() <= most_compared_runs, runs.size(), " runs");
    const Places places = places_by_name(runs);
    return cat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
               "<title>loratrain: ", runs.size(), " runs</title>\n<style>\n", report::style(),
               "</style>\n</head>\n<body>\n<h1>", runs.size(), " runs</h1>\n", runs_table(runs),
               "<h2>Adapters</h2>\n", adapters_table(runs, places), "<h2>Curves</h2>\n",
               charts(runs, places), "<footer>Written ", time_text(now), " by loratrain ",
               html::escape(version_text()), " (", html::escape(git_hash()),
               ")</footer>\n</body>\n</html>\n");
}

}  // namespace loratrain

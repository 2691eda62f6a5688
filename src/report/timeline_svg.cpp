#include "report/timeline_svg.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "plan/action_traits.h"
#include "report/chart_axis.h"
#include "report/html.h"

namespace loratrain {

namespace {

constexpr double width = 1240.0;
constexpr double left = 64.0;
constexpr double right = 78.0;
constexpr double top = 34.0;
constexpr double row_height = 40.0;
constexpr double bar_height = 30.0;
constexpr double axis_height = 42.0;
constexpr double legend_row = 20.0;
constexpr double legend_column = 196.0;
constexpr double narrowest_label = 13.0;
constexpr double narrowest_bar = 0.3;
constexpr double narrowest_step = 1.6;
constexpr std::size_t most_named = 16;

/// Full colours of adapters, those of the report page, and pale ones for forwards.
struct Shade {
    const char* full;
    const char* pale;
};
constexpr std::array<Shade, 8> palette{{{"#0072b2", "#99c9e6"},
                                        {"#d55e00", "#f3bd96"},
                                        {"#009e73", "#95d8c5"},
                                        {"#cc5f9f", "#ecc3db"},
                                        {"#e0a000", "#f5dc9c"},
                                        {"#56b4e9", "#bfe2f7"},
                                        {"#7b4fb5", "#cbb8e3"},
                                        {"#5b6675", "#b9c0ca"}}};
constexpr Shade unknown_shade{"#5b6675", "#b9c0ca"};
constexpr const char* pale_label = " style=\"font-size:10px;fill:#1c2430\"";
constexpr const char* full_label = " style=\"font-size:10px;fill:#ffffff\"";
constexpr const char* title_style =
    " class=\"title\" fill=\"#1c2430\" style=\"font-size:14px;font-weight:600\"";
constexpr const char* step_color = "#1c2430";
constexpr const char* idle_color = "#e9ebef";
constexpr const char* paper_color = "#ffffff";

bool computes(const TraceSpan& span) {
    return span.category == "forward" || span.category == "backward" || span.category == "step";
}

std::string number(double value) {
    return format_fixed(value, 2);
}

/// The class of what the report page, which may be dark, paints otherwise.
const char* class_of(const std::string& fill) {
    if (fill == paper_color) return " class=\"paper\"";
    if (fill == idle_color) return " class=\"idle\"";
    return fill == step_color ? " class=\"step\"" : "";
}

std::string rectangle(double x, double y, double w, double h, const char* fill) {
    return cat("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(w),
               "\" height=\"", number(h), "\" fill=\"", fill, "\"", class_of(fill), "/>");
}

std::string text_at(double x, double y, const char* anchor, std::string_view text,
                    const char* more = "") {
    return cat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"",
               more, ">", html::escape(text), "</text>\n");
}

/// Seconds, milliseconds or microseconds, whichever gives handy numbers.
struct TimeUnit {
    double factor = 1.0;
    const char* name = "s";
};
TimeUnit unit_for(double seconds) {
    if (seconds >= 2.0) return {};
    return seconds >= 2e-3 ? TimeUnit{1e3, "ms"} : TimeUnit{1e6, "µs"};
}

class TimelinePicture {
  public:
    TimelinePicture(const std::vector<TraceSpan>& spans, const TimeRange& range,
                    const std::vector<std::string>& adapters)
        : spans_(spans), range_(range), adapters_(adapters) {
        std::set<std::int32_t> ranks;
        for (const TraceSpan& span : spans) {
            ranks.insert(span.rank);
            for (const TraceShare& share : shares_of(span)) name_adapter(share.adapter);
        }
        for (const std::int32_t rank : ranks) {
            const auto row = static_cast<double>(row_of_.size());
            row_of_[rank] = row;
        }
        scale_ = range.to > range.from ? (width - left - right) / (range.to - range.from) : 0.0;
    }

    std::string draw(const std::string& title) const {
        const double floor = top + row_height * static_cast<double>(row_of_.size());
        const double height = floor + axis_height + legend_height();
        std::string markup =
            cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width), " ",
                number(height), "\" role=\"img\" aria-label=\"", html::escape(title),
                "\" font-family=\"system-ui, DejaVu Sans, sans-serif\" font-size=\"12\" "
                "fill=\"#1c2430\">\n",
                rectangle(0, 0, width, height, paper_color), "\n");
        markup += text_at(left, 20, "start", title, title_style);
        markup += text_at(width - 6, 20, "end", "idle");
        for (const auto& [rank, row] : row_of_) markup += row_markup(rank, row);
        for (const TraceSpan& span : spans_) {
            if (computes(span)) markup += span_markup(span);
        }
        return markup + axis_markup(floor) + legend_markup(floor + axis_height) + "</svg>\n";
    }

  private:
    void name_adapter(const std::string& name) {
        if (std::find(adapters_.begin(), adapters_.end(), name) == adapters_.end()) {
            adapters_.push_back(name);
        }
    }

    Shade shade_of(const std::string& adapter) const {
        const auto found = std::find(adapters_.begin(), adapters_.end(), adapter);
        if (found == adapters_.end()) return unknown_shade;
        return palette[static_cast<std::size_t>(found - adapters_.begin()) % palette.size()];
    }

    double x_of(double seconds) const {
        return left + scale_ * (std::clamp(seconds, range_.from, range_.to) - range_.from);
    }
    static double y_of(double row) { return top + row_height * row; }

    std::string row_markup(std::int32_t rank, double row) const {
        const double share = idle_share(spans_, rank, range_);
        const double y = y_of(row);
        return rectangle(left, y, width - left - right, bar_height, idle_color) + "\n" +
               text_at(left - 8, y + bar_height / 2 + 4, "end", cat("rank ", rank)) +
               text_at(width - 6, y + bar_height / 2 + 4, "end",
                       format_fixed(100.0 * share, 1) + "%");
    }

    std::string span_markup(const TraceSpan& span) const {
        if (span.end_s <= range_.from || span.start_s >= range_.to) return "";
        const double x = x_of(span.start_s);
        const bool step = span.category == "step";
        const double w = std::max(step ? narrowest_step : narrowest_bar, x_of(span.end_s) - x);
        const double y = y_of(row_of_.at(span.rank));
        std::string markup = cat("<g><title>", html::escape(tip(span)), "</title>");
        if (step) return markup + rectangle(x, y, w, bar_height, step_color) + "</g>\n";
        markup += bands(span, x, y, w);
        if (w >= narrowest_label) {
            const std::string label = span.name.substr(span.name.rfind(' ') + 1);
            const bool pale = span.category == "forward";
            markup += text_at(x + w / 2, y + bar_height / 2 + 4, "middle", label,
                              pale ? pale_label : full_label);
        }
        return markup + "</g>\n";
    }

    /// One above the other, as high as their tokens.
    std::string bands(const TraceSpan& span, double x, double y, double w) const {
        std::vector<TraceShare> shares = shares_of(span);
        if (shares.empty()) shares.push_back({"", 1});
        double sum = 0.0;
        for (const TraceShare& share : shares) sum += static_cast<double>(share.tokens);
        const double gap = w > 3.0 ? 0.6 : 0.0;
        std::string markup;
        for (const TraceShare& share : shares) {
            const double part = sum > 0.0 ? static_cast<double>(share.tokens) / sum
                                          : 1.0 / static_cast<double>(shares.size());
            const Shade shade = shade_of(share.adapter);
            const char* fill = span.category == "forward" ? shade.pale : shade.full;
            markup += rectangle(x, y, w - gap, bar_height * part, fill);
            y += bar_height * part;
        }
        return markup;
    }

    std::string tip(const TraceSpan& span) const {
        const TimeUnit unit = unit_for(range_.to - range_.from);
        std::string text =
            cat(span.name, ": ", tick_label((span.start_s - range_.from) * unit.factor), " to ",
                tick_label((span.end_s - range_.from) * unit.factor), " ", unit.name);
        for (const auto& [key, value] : span.args) text += cat("\n", key, ": ", value);
        return text;
    }

    std::string axis_markup(double floor) const {
        const TimeUnit unit = unit_for(range_.to - range_.from);
        const std::vector<double> ends{0.0, (range_.to - range_.from) * unit.factor};
        ChartAxis axis(ends, false, true);
        axis.fit_tightly(ends);
        std::string markup;
        for (const Tick& tick : axis.ticks()) {
            const double x = left + axis.position(tick.value) * (width - left - right);
            markup += cat("<line x1=\"", number(x), "\" y1=\"", number(floor - 6), "\" x2=\"",
                          number(x), "\" y2=\"", number(floor), "\" stroke=\"#8a94a3\"/>");
            markup += text_at(x, floor + 14, "middle", tick.label);
        }
        return markup + text_at(left + (width - left - right) / 2, floor + 32, "middle",
                                cat("time / ", unit.name));
    }

    std::size_t named() const { return std::min(adapters_.size(), most_named); }
    static std::size_t columns() {
        return static_cast<std::size_t>((width - left) / legend_column);
    }
    double legend_height() const {
        const std::size_t rows = (named() + columns() - 1) / columns() + 1;
        return legend_row * static_cast<double>(rows) + 12.0;
    }

    std::string legend_markup(double y) const {
        std::string markup =
            legend_entry(0, y, unknown_shade.pale, unknown_shade.pale, "pale: forward") +
            legend_entry(1, y, unknown_shade.full, unknown_shade.full, "full: backward") +
            legend_entry(2, y, step_color, step_color, "optimizer step") +
            legend_entry(3, y, idle_color, idle_color, "idle");
        if (adapters_.size() > named()) {
            markup += text_at(left + 4 * legend_column, y + 10, "start",
                              cat("and ", adapters_.size() - named(), " adapters more"));
        }
        for (std::size_t a = 0; a < named(); ++a) {
            const Shade shade = shade_of(adapters_[a]);
            const std::size_t row = a / columns() + 1;
            markup += legend_entry(a % columns(), y + legend_row * static_cast<double>(row),
                                   shade.pale, shade.full, adapters_[a]);
        }
        return markup;
    }

    static std::string legend_entry(std::size_t column, double y, const char* first,
                                    const char* second, const std::string& name) {
        const double x = left + legend_column * static_cast<double>(column);
        constexpr std::size_t longest = 24;
        const std::string shown = name.size() > longest ? name.substr(0, longest - 1) + "…" : name;
        return rectangle(x, y, 10, 12, first) + rectangle(x + 10, y, 10, 12, second) +
               text_at(x + 26, y + 10, "start", shown);
    }

    const std::vector<TraceSpan>& spans_;
    TimeRange range_;
    std::vector<std::string> adapters_;
    std::map<std::int32_t, double> row_of_;
    double scale_ = 0.0;
};

}  // namespace

TimeRange first_stretch(const std::vector<TraceSpan>& spans, std::size_t most) {
    std::map<std::int32_t, std::vector<const TraceSpan*>> of_rank;
    TimeRange range;
    for (const TraceSpan& span : spans) {
        if (!computes(span)) continue;
        const bool first = of_rank.empty();
        range.from = first ? span.start_s : std::min(range.from, span.start_s);
        range.to = first ? span.end_s : std::max(range.to, span.end_s);
        of_rank[span.rank].push_back(&span);
    }
    for (auto& [rank, own] : of_rank) {
        if (own.size() <= most) continue;
        std::sort(own.begin(), own.end(),
                  [](const TraceSpan* a, const TraceSpan* b) { return a->start_s < b->start_s; });
        range.to = std::min(range.to, own[most]->start_s);
    }
    return range;
}

double idle_share(const std::vector<TraceSpan>& spans, std::int32_t rank, const TimeRange& range) {
    double busy = 0.0;
    for (const TraceSpan& span : spans) {
        if (span.rank != rank || !computes(span)) continue;
        const double from = std::max(span.start_s, range.from);
        const double to = std::min(span.end_s, range.to);
        busy += std::max(0.0, to - from);
    }
    const double whole = range.to - range.from;
    return whole > 0.0 ? std::clamp(1.0 - busy / whole, 0.0, 1.0) : 0.0;
}

std::string timeline_svg(const std::vector<TraceSpan>& spans, const TimeRange& range,
                         const std::string& title, const std::vector<std::string>& adapters) {
    return TimelinePicture(spans, range, adapters).draw(title);
}

namespace {

std::vector<TraceShare> shares_in(const Job& job, const Microbatch& microbatch) {
    std::vector<TraceShare> shares;
    for (const Segment& segment : microbatch.segments) {
        shares.push_back({job.adapter(segment.adapter).name, segment.tokens()});
    }
    return shares;
}

TraceSpan trace_span(const Job& job, const Timeline& timeline, const TimelineSpan& span) {
    TraceSpan trace;
    trace.start_s = span.start;
    trace.end_s = span.end;
    if (traits_of(span.kind).number == ActionNumber::batch) {
        const BatchPlan& batch = timeline.batches[static_cast<std::size_t>(span.batch)];
        const std::string& adapter = job.adapter(batch.adapter).name;
        trace.category = traits_of(span.kind).word;
        trace.name = cat(trace.category, " ", adapter, " ", batch.step + 1);
        trace.args = share_args({{adapter, batch.tokens}});
        return trace;
    }
    trace.category = traits_of(span.kind).word;
    trace.name = cat(trace.category, " ", span.microbatch);
    trace.args = share_args(
        shares_in(job, timeline.microbatches[static_cast<std::size_t>(span.microbatch)]));
    return trace;
}

}  // namespace

std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline) {
    std::vector<TraceSpan> spans;
    auto of_stage = timeline.stages.begin();
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (const TimelineSpan& span : *of_stage++) {
                spans.push_back(trace_span(job, timeline, span));
                spans.back().rank = stage.rank;
            }
        }
    }
    return spans;
}

std::vector<std::string> adapter_names(const Job& job) {
    std::vector<std::string> names;
    for (const AdapterJob& adapter : job.adapters) names.push_back(adapter.name);
    return names;
}

}  // namespace loratrain

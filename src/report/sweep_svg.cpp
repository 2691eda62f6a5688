#include "report/sweep_svg.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "report/chart_axis.h"
#include "report/html.h"

namespace loratrain {

namespace {

constexpr double sweep_width = 1000.0;
constexpr double sweep_left = 84.0;
constexpr double sweep_right = 92.0;
constexpr double sweep_top = 34.0;
constexpr double line_height = 7.0;
constexpr double bar_thickness = 6.0;
constexpr double block_gap = 8.0;
constexpr double least_block = 14.0;  // a line of text
constexpr double sweep_axis = 42.0;
constexpr double sweep_legend = 26.0;
constexpr double legend_step = 110.0;
constexpr std::array<const char*, 8> sweep_colors{"#0072b2", "#d55e00", "#009e73", "#cc5f9f",
                                                  "#e0a000", "#56b4e9", "#7b4fb5", "#5b6675"};

std::string sweep_bar(double x, double y, double w, double h, const char* fill) {
    return cat("<rect x=\"", format_fixed(x, 2), "\" y=\"", format_fixed(y, 2), "\" width=\"",
               format_fixed(w, 2), "\" height=\"", format_fixed(h, 2), "\" fill=\"", fill, "\"/>");
}

std::string sweep_label(double x, double y, const char* anchor, std::string_view text) {
    return cat("<text x=\"", format_fixed(x, 2), "\" y=\"", format_fixed(y, 2), "\" text-anchor=\"",
               anchor, "\">", html::escape(text), "</text>\n");
}

/// Per trial of a queue the first line on which none before it is under way.
std::vector<std::size_t> lines_of(const QueueRun& run) {
    std::vector<double> free_at;
    std::vector<std::size_t> lines;
    for (const TrialSpan& span : run.spans) {
        const auto free = std::find_if(free_at.begin(), free_at.end(),
                                       [&](double end) { return end <= span.begin; });
        lines.push_back(static_cast<std::size_t>(free - free_at.begin()));
        if (free == free_at.end()) {
            free_at.push_back(span.end);
        } else {
            *free = span.end;
        }
    }
    return lines;
}

class SweepPicture {
  public:
    SweepPicture(const Job& job, const SweepDeployment& deployment)
        : job_(job), plan_(deployment.plan), runs_(deployment.runs) {
        std::set<int> batches;
        for (const auto& queue : plan_.queues) {
            for (const AdapterId id : queue) batches.insert(job.adapter(id).global_batch_size);
        }
        batches_.assign(batches.begin(), batches.end());
        scale_ = plan_.seconds > 0 ? (sweep_width - sweep_left - sweep_right) / plan_.seconds : 0;
    }

    std::string draw() const {
        std::string blocks;
        double y = sweep_top;
        for (std::size_t g = 0; g < runs_.size(); ++g) blocks += block(g, y);
        const double height = y + sweep_axis + sweep_legend;
        const std::string title =
            cat("Sweep on ", plan_.shape.replicas, " x {tp: ", plan_.shape.tensor,
                ", pp: ", plan_.shape.stages, "}, ", human_duration(plan_.seconds), " by the plan");
        return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", sweep_width, " ",
                   format_fixed(height, 2), "\" role=\"img\" aria-label=\"", html::escape(title),
                   "\" font-family=\"system-ui, DejaVu Sans, sans-serif\" font-size=\"12\" "
                   "fill=\"#1c2430\">\n",
                   sweep_bar(0, 0, sweep_width, height, "#ffffff"), "\n",
                   sweep_label(sweep_left, 20, "start", title), blocks, axis(y),
                   legend(y + sweep_axis), "</svg>\n");
    }

  private:
    double x_of(double seconds) const { return sweep_left + scale_ * seconds; }

    const char* color_of(AdapterId id) const {
        const int batch = job_.adapter(id).global_batch_size;
        const auto found = std::find(batches_.begin(), batches_.end(), batch);
        return sweep_colors[static_cast<std::size_t>(found - batches_.begin()) %
                            sweep_colors.size()];
    }

    /// Moves y below it.
    std::string block(std::size_t g, double& y) const {
        const QueueRun& run = runs_[g];
        const std::vector<std::size_t> lines = lines_of(run);
        const std::size_t most =
            lines.empty() ? 0 : *std::max_element(lines.begin(), lines.end()) + 1;
        const double height = std::max(least_block, line_height * static_cast<double>(most));
        std::string markup =
            sweep_bar(sweep_left, y, sweep_width - sweep_left - sweep_right, height, "#f3f4f6");
        markup += sweep_bar(x_of(run.seconds), y, x_of(plan_.seconds) - x_of(run.seconds), height,
                            "#d5d9e0");
        markup += "\n" + sweep_label(sweep_left - 8, y + 11, "end", cat("replica ", g));
        markup += sweep_label(sweep_width - 6, y + 11, "end", human_duration(run.seconds));
        for (std::size_t i = 0; i < lines.size(); ++i) {
            const AdapterId id = plan_.queues[g][i];
            const TrialSpan& span = run.spans[i];
            const double x = x_of(span.begin);
            markup +=
                cat("<g><title>", html::escape(job_.adapter(id).name), ": ",
                    human_duration(span.begin), " to ", human_duration(span.end), "</title>",
                    sweep_bar(x, y + line_height * static_cast<double>(lines[i]),
                              std::max(1.0, x_of(span.end) - x - 0.6), bar_thickness, color_of(id)),
                    "</g>\n");
        }
        y += height + block_gap;
        return markup;
    }

    std::string axis(double y) const {
        const bool hours = plan_.seconds >= 3 * 3600.0;
        const bool minutes = !hours && plan_.seconds >= 180.0;
        const double unit = hours ? 3600.0 : minutes ? 60.0 : 1.0;
        const std::vector<double> ends{0.0, plan_.seconds / unit};
        ChartAxis axis(ends, false, true);
        axis.fit_tightly(ends);
        std::string markup;
        for (const Tick& tick : axis.ticks()) {
            markup += sweep_label(x_of(tick.value * unit), y + 12, "middle", tick.label);
        }
        const double middle = (sweep_left + sweep_width - sweep_right) / 2;
        return markup + sweep_label(middle, y + 30, "middle",
                                    hours     ? "time / h"
                                    : minutes ? "time / min"
                                              : "time / s");
    }

    std::string legend(double y) const {
        std::string markup;
        for (std::size_t b = 0; b < std::min(batches_.size(), sweep_colors.size()); ++b) {
            const double x = sweep_left + legend_step * static_cast<double>(b);
            markup += sweep_bar(x, y, 20, 10, sweep_colors[b]) + "\n" +
                      sweep_label(x + 26, y + 10, "start", cat("batch ", batches_[b]));
        }
        return markup;
    }

    const Job& job_;
    const SweepPlan& plan_;
    const std::vector<QueueRun>& runs_;
    std::vector<int> batches_;  ///< global_batch_size, rising
    double scale_ = 0.0;        ///< units of the picture per second
};

}  // namespace

std::string sweep_svg(const Job& job, const SweepDeployment& deployment) {
    return SweepPicture(job, deployment).draw();
}

}  // namespace loratrain

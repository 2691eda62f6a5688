#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "io/run_files/status_file.h"
#include "report/chart_axis.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/sweep_analysis.h"

namespace loratrain::report {

namespace {

using html::Cell;
using html::number_cell;
using html::text_cell;

constexpr std::size_t most_in_table = 25;
constexpr std::size_t most_labels = 8;
constexpr double top_share = 0.1;

std::string coordinate(double value) {
    return format_fixed(value, 1);
}

std::string objective_text(const Job& job, double value) {
    const bool exact = job.sweep->objective == SweepObjective::exact_match;
    return exact ? format_fixed(100.0 * value, 1) + "%" : format_fixed(value, 4);
}

std::string objective_name(const Job& job) {
    const bool exact = job.sweep->objective == SweepObjective::exact_match;
    return exact ? accuracy_name(job.adapters) : "eval loss";
}

/// The class of a trial's marks: the winner, those near it, the others.
const char* css_of(std::size_t place, std::size_t trials) {
    if (place == 0) return "trial winner";
    const bool near_top = static_cast<double>(place) < top_share * static_cast<double>(trials);
    return near_top ? "trial top" : "trial";
}

std::vector<Cell> board_row(const RunRecord& run, const SweptTrials& sweep, std::size_t t) {
    const AdapterResult& result = *sweep.trials[t];
    const std::optional<double>& objective = result.trial->objective;
    const std::string status = html::escape(result.status);
    std::vector<Cell> row{number_cell(std::to_string(result.trial->rank)),
                          text_cell(run.job.adapter(result.adapter).name),
                          html::markup_cell("<span class=\"" + status + "\">" + status + "</span>"),
                          number_cell(objective ? objective_text(run.job, *objective) : "-"),
                          number_cell(std::to_string(result.summary.steps))};
    for (const SweptKey& key : sweep.keys) row.push_back(number_cell(key.values[key.of_trial[t]]));
    row.push_back(text_cell(result.trial->reason));
    return row;
}

std::string board(const RunRecord& run, const SweptTrials& sweep) {
    std::vector<Cell> head{number_cell("rank"), text_cell("trial"), text_cell("status"),
                           number_cell(objective_name(run.job)), number_cell("steps")};
    for (const SweptKey& key : sweep.keys) head.push_back(number_cell(key.name));
    head.push_back(text_cell("ended"));
    std::vector<std::vector<Cell>> rows;
    const std::size_t shown = std::min(most_in_table, sweep.trials.size());
    for (std::size_t t = 0; t < shown; ++t) rows.push_back(board_row(run, sweep, t));
    const std::size_t hidden = sweep.trials.size() - shown;
    const std::string more =
        hidden == 0 ? "" : cat("<p class=\"note\">", hidden, " more are in results.csv.</p>\n");
    return html::table(head, rows) + more;
}

/// The base and the reference, to see the best against.
std::string beside(const RunRecord& run, const SweptTrials& sweep) {
    std::string text;
    const AdapterResult& best = *sweep.trials.front();
    const auto add = [&](const std::string& name, const std::optional<double>& loss,
                         const std::optional<double>& exact) {
        text += cat(text.empty() ? "" : "; ", html::escape(name), ": eval loss ",
                    loss ? format_fixed(*loss, 4) : "-", ", ",
                    accuracy_name({run.job.adapter(best.adapter)}), " ",
                    exact ? format_fixed(100.0 * *exact, 1) + "%" : "-");
    };
    for (const MetricsRow& row : run.metrics[index(best.adapter)]) {
        if (row.step > 0) continue;
        MetricsSummary base;
        base.add(row);
        add("base", base.first_eval_loss, base.last_exact_match);
    }
    for (const AdapterResult& result : run.results) {
        const AdapterJob& adapter = run.job.adapter(result.adapter);
        if (adapter.name != run.job.sweep->reference) continue;
        if (adapter.dataset != run.job.adapter(best.adapter).dataset) continue;
        add("reference " + adapter.name, result.summary.last_eval_loss,
            result.summary.last_exact_match);
    }
    add("best, " + run.job.adapter(best.adapter).name, best.summary.last_eval_loss,
        best.summary.last_exact_match);
    return "<p>" + text + "</p>\n";
}

/// Where a trial's objective lies, from 0 (worst shown) to 1 (best); what is very bad counts as the
/// worst, so that the others can be distinguished.
class ObjectiveScale {
  public:
    ObjectiveScale(const Job& job, const SweptTrials& sweep)
        : higher_is_better_(job.sweep->objective == SweepObjective::exact_match) {
        for (const AdapterResult* trial : sweep.trials) {
            if (trial->trial->objective) values_.push_back(*trial->trial->objective);
        }
        std::sort(values_.begin(), values_.end());
        if (higher_is_better_) std::reverse(values_.begin(), values_.end());
        if (values_.empty()) return;
        const std::size_t place = values_.size() - 1 - values_.size() / 20;
        best_ = values_.front();
        worst_ = values_[place];
        logarithm_ =
            !higher_is_better_ && best_ > 0.0 && worst_ > ChartAxis::logarithmic_ratio * best_;
    }
    bool empty() const { return values_.empty(); }
    double best() const { return best_; }
    double worst() const { return worst_; }
    bool logarithmic() const { return logarithm_; }
    double position(double value) const {
        if (best_ == worst_) return 1.0;
        const auto at = [&](double v) { return logarithm_ ? std::log(v) : v; };
        return std::clamp((at(worst_) - at(value)) / (at(worst_) - at(best_)), 0.0, 1.0);
    }

  private:
    bool higher_is_better_;
    bool logarithm_ = false;
    std::vector<double> values_;  ///< best first
    double best_ = 0.0;
    double worst_ = 0.0;
};

double share_of(const SweptKey& key, std::size_t place) {
    return (static_cast<double>(place) + 0.5) / static_cast<double>(key.values.size());
}

std::string svg_text(double x, double y, const char* anchor, const std::string& text) {
    return cat("<text x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" text-anchor=\"", anchor,
               "\">", html::escape(text), "</text>\n");
}

std::string vertical(double x, double from, double to) {
    return cat("<line class=\"axis\" x1=\"", coordinate(x), "\" y1=\"", coordinate(from),
               "\" x2=\"", coordinate(x), "\" y2=\"", coordinate(to), "\"/>\n");
}

/// One line per trial through its values of all keys to its objective.
std::string parallel_coordinates(const RunRecord& run, const SweptTrials& sweep) {
    constexpr double height = 300.0;
    constexpr double top = 26.0;
    constexpr double bottom = 284.0;
    constexpr double between = 150.0;
    constexpr double left = 70.0;
    constexpr double right = 80.0;
    const ObjectiveScale scale(run.job, sweep);
    if (scale.empty() || sweep.keys.empty()) return "";
    const double last = left + between * static_cast<double>(sweep.keys.size());
    const auto y_of = [&](double share) { return bottom - share * (bottom - top); };
    std::string markup;
    for (std::size_t k = 0; k < sweep.keys.size(); ++k) {
        const SweptKey& key = sweep.keys[k];
        const double x = left + between * static_cast<double>(k);
        markup += vertical(x, top, bottom) + svg_text(x, 14, "middle", key.name);
        const std::size_t every = (key.values.size() + most_labels - 1) / most_labels;
        for (std::size_t v = 0; v < key.values.size(); v += every) {
            markup += svg_text(x - 5, y_of(share_of(key, v)) + 4, "end", key.values[v]);
        }
    }
    markup += vertical(last, top, bottom) +
              svg_text(last, 14, "middle",
                       cat(objective_name(run.job), scale.logarithmic() ? " (log)" : "")) +
              svg_text(last + 6, top + 4, "start", objective_text(run.job, scale.best())) +
              svg_text(last + 6, bottom + 4, "start", objective_text(run.job, scale.worst()));
    for (std::size_t t = sweep.trials.size(); t-- > 0;) {
        const AdapterResult& trial = *sweep.trials[t];
        if (!trial.trial->objective) continue;
        std::string path;
        for (std::size_t k = 0; k < sweep.keys.size(); ++k) {
            const double x = left + between * static_cast<double>(k);
            path += cat(path.empty() ? "M" : "L", coordinate(x), " ",
                        coordinate(y_of(share_of(sweep.keys[k], sweep.keys[k].of_trial[t]))));
        }
        path += cat("L", coordinate(last), " ",
                    coordinate(y_of(scale.position(*trial.trial->objective))));
        markup += cat("<path class=\"", css_of(t, sweep.trials.size()), "\" d=\"", path,
                      "\"><title>", html::escape(run.job.adapter(trial.adapter).name), ": ",
                      objective_text(run.job, *trial.trial->objective), "</title></path>\n");
    }
    const std::string width = coordinate(last + right);
    return cat("<figure style=\"margin:12px 0;max-width:", format_fixed(1.5 * (last + right), 0),
               "px\"><figcaption>Every trial: its keys and its result</figcaption>\n"
               "<svg viewBox=\"0 0 ",
               width, " ", coordinate(height),
               "\" role=\"img\" aria-label=\"parallel coordinates\">\n", markup,
               "</svg></figure>\n");
}

/// The objective against one key: a column of dots per value.
std::string key_chart(const RunRecord& run, const SweptTrials& sweep, const SweptKey& key) {
    constexpr double width = 460.0;
    constexpr double top = 14.0;
    constexpr double bottom = 190.0;
    constexpr double left = 54.0;
    const ObjectiveScale scale(run.job, sweep);
    if (scale.empty()) return "";
    const auto x_of = [&](std::size_t v) { return left + share_of(key, v) * (width - left - 12); };
    std::string markup = vertical(left, top, bottom);
    markup += svg_text(left - 6, top + 4, "end", objective_text(run.job, scale.best()));
    markup += svg_text(left - 6, bottom + 4, "end", objective_text(run.job, scale.worst()));
    const std::size_t every = (key.values.size() + most_labels - 1) / most_labels;
    for (std::size_t v = 0; v < key.values.size(); v += every) {
        markup += svg_text(x_of(v), bottom + 18, "middle", key.values[v]);
    }
    for (std::size_t t = sweep.trials.size(); t-- > 0;) {
        const AdapterResult& trial = *sweep.trials[t];
        if (!trial.trial->objective) continue;
        const double y = bottom - scale.position(*trial.trial->objective) * (bottom - top);
        markup += cat("<circle class=\"", css_of(t, sweep.trials.size()), "\" cx=\"",
                      coordinate(x_of(key.of_trial[t])), "\" cy=\"", coordinate(y),
                      "\" r=\"4\"><title>", html::escape(run.job.adapter(trial.adapter).name), ": ",
                      objective_text(run.job, *trial.trial->objective), "</title></circle>\n");
    }
    return cat("<figure><figcaption>", html::escape(cat(objective_name(run.job), " by ", key.name)),
               "</figcaption>\n<svg viewBox=\"0 0 460 215\" role=\"img\" aria-label=\"",
               html::escape(key.name), "\">\n", markup, "</svg></figure>\n");
}

Cell share_cell(const std::optional<double>& share) {
    if (!share) return text_cell("-");
    const int pixels = static_cast<int>(std::lround(160.0 * *share));
    return html::markup_cell(cat("<span class=\"bar\" style=\"width:", pixels, "px\"></span> ",
                                 format_fixed(100.0 * *share, 1), "%"));
}

/// "" where no trials can be compared.
std::string importance(const RunRecord& run, const SweptTrials& sweep) {
    std::vector<const SweptKey*> keys;
    for (const SweptKey& key : sweep.keys) keys.push_back(&key);
    std::stable_sort(keys.begin(), keys.end(), [](const SweptKey* a, const SweptKey* b) {
        return a->eta_squared > b->eta_squared;
    });
    std::vector<std::vector<Cell>> rows;
    for (const SweptKey* key : keys) {
        const auto& spread = key->spread_through_best;
        if (!key->eta_squared && !spread) continue;
        rows.push_back({text_cell(key->name), share_cell(key->eta_squared),
                        number_cell(spread ? objective_text(run.job, *spread) : "-")});
    }
    if (rows.empty()) return "";
    return "<h3>How much each key matters</h3>\n" +
           html::table({text_cell("key"), text_cell("of the variance (eta squared)"),
                        number_cell("spread through the best")},
                       rows) +
           cat("<p class=\"note\">Of the ", sweep.complete, " of ", sweep.trials.size(),
               " trials that trained to their end. Spread: largest minus smallest among the trials "
               "that equal the best one in all other keys.</p>\n");
}

std::string section_of(const RunRecord& run, DatasetId dataset) {
    const SweptTrials sweep = analyse_sweep(run, dataset);
    if (sweep.trials.empty()) return "";
    std::string markup = "<h2>Sweep on " + html::escape(run.job.dataset(dataset).name) + "</h2>\n" +
                         beside(run, sweep) + board(run, sweep) + parallel_coordinates(run, sweep) +
                         "<div class=\"charts\">\n";
    for (const SweptKey& key : sweep.keys) markup += key_chart(run, sweep, key);
    markup += "</div>\n";
    return markup + importance(run, sweep);
}

}  // namespace

std::string sweep(const RunRecord& run) {
    std::string markup;
    if (!run.job.sweep) return markup;
    for (std::size_t d = 0; d < run.job.datasets.size(); ++d) {
        markup += section_of(run, static_cast<DatasetId>(d));
    }
    return markup;
}

}  // namespace loratrain::report

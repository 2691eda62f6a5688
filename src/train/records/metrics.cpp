#include "train/records/metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/files.h"

namespace loratrain {

namespace {

/// JSON has no infinity or NaN: those become null.
std::string json_number(double value) {
    return std::isfinite(value) ? format_exact(value) : "null";
}

std::string step_fields(const StepMetrics& m) {
    return cat("\"step\": ", m.step, ", \"epoch\": ", json_number(m.epoch),
               ", \"loss\": ", json_number(m.loss), ", \"grad_norm\": ", json_number(m.grad_norm),
               ", \"learning_rate\": ", json_number(m.learning_rate),
               ", \"target_tokens\": ", m.target_tokens, ", \"tokens\": ", m.tokens,
               ", \"tokens_per_second\": ", format_fixed(m.tokens_per_second, 1),
               ", \"elapsed_seconds\": ", format_fixed(m.elapsed_seconds, 3));
}

}  // namespace

MetricsLog::MetricsLog(const Job& job) : job_(job), pending_(job.adapters.size()) {}

void MetricsLog::add_adapters() {
    pending_.resize(job_.adapters.size());
}

std::string MetricsLog::path(AdapterId adapter) const {
    return job_.run.dir + "/adapters/" + job_.adapter(adapter).name + "/metrics.jsonl";
}

std::vector<MetricsRow> MetricsLog::restore(AdapterId adapter, std::int32_t steps) {
    std::vector<MetricsRow> rows;
    const std::string file = path(adapter);
    if (!std::filesystem::exists(file)) return rows;
    std::istringstream lines(read_text(file));
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
        const std::optional<MetricsRow> row = metrics_row(line);
        if (!row || row->step > steps) continue;
        kept += line + '\n';
        rows.push_back(*row);
    }
    write_text_atomic(file, kept);
    return rows;
}

void MetricsLog::record(AdapterId adapter, const StepMetrics& metrics) {
    pending_[index(adapter)].push_back({metrics.step, step_fields(metrics)});
}

void MetricsLog::record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                                   double exact_match) {
    const std::string fields = cat("\"eval_loss\": ", json_number(eval_loss),
                                   ", \"eval_perplexity\": ", json_number(std::exp(eval_loss)),
                                   ", \"eval_exact_match\": ", json_number(exact_match));
    auto& lines = pending_[index(adapter)];
    const auto line =
        std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.step == step; });
    if (line == lines.end()) {
        lines.push_back({step, cat("\"step\": ", step, ", ", fields)});
    } else {
        line->fields += ", " + fields;
    }
}

std::vector<std::vector<MetricsRow>> MetricsLog::flush() {
    std::vector<std::vector<MetricsRow>> rows(pending_.size());
    for (std::size_t i = 0; i < pending_.size(); ++i) {
        if (pending_[i].empty()) continue;
        const std::string file = path(static_cast<AdapterId>(i));
        std::ofstream out(file, std::ios::app);
        for (const Line& line : pending_[i]) {
            const std::string text = "{" + line.fields + "}";
            out << text << '\n';
            rows[i].push_back(metrics_row(text).value());
        }
        out.flush();
        if (!out) throw Error(file + ": cannot be written");
        pending_[i].clear();
    }
    return rows;
}

}  // namespace loratrain

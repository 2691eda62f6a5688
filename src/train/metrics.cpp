#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

/// Step of a complete line; -1 when it is torn (the writer died in it).
std::int32_t step_of(const std::string& line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.contains("step")) return -1;
    return json["step"].get<std::int32_t>();
}

}  // namespace

MetricsLog::MetricsLog(const Job& job) : job_(job), pending_(job.adapters.size()) {}

std::string MetricsLog::path(AdapterId adapter) const {
    return job_.run.dir + "/adapters/" + job_.adapter(adapter).name + "/metrics.jsonl";
}

void MetricsLog::restore(AdapterId adapter, std::int32_t steps) {
    const std::string file = path(adapter);
    if (!std::filesystem::exists(file)) return;
    std::istringstream lines(read_text(file));
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
        const std::int32_t step = step_of(line);
        if (step >= 0 && step <= steps) kept += line + '\n';
    }
    write_text_atomic(file, kept);
}

void MetricsLog::record(AdapterId adapter, const StepMetrics& metrics) {
    pending_[index(adapter)].push_back({metrics.step, step_fields(metrics)});
}

void MetricsLog::record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                                   double exact_match) {
    const std::string fields = cat("\"eval_loss\": ", json_number(eval_loss),
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

void MetricsLog::flush() {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
        if (pending_[i].empty()) continue;
        const std::string file = path(static_cast<AdapterId>(i));
        std::ofstream out(file, std::ios::app);
        for (const Line& line : pending_[i]) out << '{' << line.fields << "}\n";
        out.flush();
        if (!out) throw Error(file + ": cannot be written");
        pending_[i].clear();
    }
}

}  // namespace loratrain

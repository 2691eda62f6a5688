#include "io/run_files/results_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "config/targets_text.h"

namespace loratrain {

namespace {

std::string field(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"';
}

std::string field(const std::optional<double>& value) {
    if (!value) return "";
    return std::isfinite(*value) ? format_exact(*value) : "nan";
}

double finite_or_last(const std::optional<double>& value) {
    return value && std::isfinite(*value) ? *value : std::numeric_limits<double>::infinity();
}

void add_sweep_fields(const AdapterJob& adapter, const std::optional<TrialResult>& trial,
                      std::vector<std::string>& fields) {
    fields.push_back(trial ? std::to_string(trial->rank) : "");
    fields.push_back(trial ? field(trial->objective) : "");
    fields.push_back(trial ? std::to_string(trial->rung) : "");
    fields.push_back(std::to_string(adapter.global_batch_size));
    fields.push_back(format_exact(adapter.lora_dropout));
    fields.push_back(targets_text(adapter));
    fields.push_back(std::to_string(adapter.seed));
    fields.push_back(trial ? field(trial->reason) : "");
}

/// Lines of fields (RFC 4180).
std::vector<std::vector<std::string>> csv_lines(const std::string& text) {
    std::vector<std::vector<std::string>> lines;
    std::vector<std::string> line{""};
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
            line.back() += text[++i];
        } else if (c == '"') {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            line.emplace_back();
        } else if (c == '\n' && !quoted) {
            lines.push_back(std::exchange(line, {""}));
        } else {
            line.back() += c;
        }
    }
    return lines;
}

template <class T>
std::optional<T> number_of(const std::string& text) {
    T value{};
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
    return value;
}

}  // namespace

std::optional<double> train_loss(const MetricsSummary& summary) {
    return summary.losses.empty() ? std::nullopt : std::optional(summary.losses.value());
}

void sort_results(const Job& job, std::vector<AdapterResult>& results) {
    const auto order = [&](const AdapterResult& result) {
        constexpr auto last = std::numeric_limits<std::size_t>::max();
        return std::tuple(index(job.adapter(result.adapter).dataset),
                          result.trial ? result.trial->rank : last,
                          finite_or_last(result.summary.last_eval_loss),
                          finite_or_last(train_loss(result.summary)));
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const auto& a, const auto& b) { return order(a) < order(b); });
}

std::string results_csv(const Job& job, const std::vector<AdapterResult>& results) {
    std::string text =
        "name,status,dataset,r,lora_alpha,learning_rate,steps,train_loss,best_train_loss,"
        "eval_loss_first,eval_loss,eval_loss_best,exact_match,tokens,seconds,path";
    text += job.sweep ? ",rank,objective,rung,batch,dropout,targets,seed,reason\n" : "\n";
    for (const AdapterResult& result : results) {
        const AdapterJob& adapter = job.adapter(result.adapter);
        const MetricsSummary& s = result.summary;
        std::vector<std::string> fields{
            field(adapter.name),
            field(result.status),
            field(job.dataset(adapter.dataset).name),
            std::to_string(adapter.r),
            format_exact(adapter.lora_alpha),
            format_exact(adapter.learning_rate),
            std::to_string(s.steps),
            field(train_loss(s)),
            field(s.best_loss),
            field(s.first_eval_loss),
            field(s.last_eval_loss),
            field(s.best_eval_loss),
            field(s.last_exact_match),
            format_fixed(s.tokens, 0),
            format_fixed(s.seconds, 3),
            field(cat(result.run, result.run.empty() ? "" : "/", "adapters/", adapter.name))};
        if (job.sweep) add_sweep_fields(adapter, result.trial, fields);
        text += join(fields, ",") + "\n";
    }
    return text;
}

std::map<std::string, TrialResult> trial_results_from_csv(const std::string& text) {
    std::map<std::string, TrialResult> trials;
    const std::vector<std::vector<std::string>> lines = csv_lines(text);
    if (lines.empty()) return trials;
    std::map<std::string, std::size_t> columns;
    for (std::size_t i = 0; i < lines[0].size(); ++i) columns.emplace(lines[0][i], i);
    for (const char* name : {"name", "rank", "objective", "rung", "reason"}) {
        if (!columns.contains(name)) return trials;
    }
    for (std::size_t l = 1; l < lines.size(); ++l) {
        if (lines[l].size() != lines[0].size()) continue;
        const auto text_of = [&](const char* name) { return lines[l][columns.at(name)]; };
        const auto rank = number_of<std::size_t>(text_of("rank"));
        if (!rank) continue;
        trials[text_of("name")] = {*rank, number_of<double>(text_of("objective")),
                                   number_of<int>(text_of("rung")).value_or(0), text_of("reason")};
    }
    return trials;
}

}  // namespace loratrain

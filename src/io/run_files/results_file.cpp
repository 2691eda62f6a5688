#include "io/run_files/results_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/text.h"

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

}  // namespace

std::optional<double> train_loss(const MetricsSummary& summary) {
    return summary.losses.empty() ? std::nullopt : std::optional(summary.losses.value());
}

void sort_results(const Job& job, std::vector<AdapterResult>& results) {
    const auto order = [&](const AdapterResult& result) {
        return std::tuple(index(job.adapter(result.adapter).dataset),
                          finite_or_last(result.summary.last_eval_loss),
                          finite_or_last(train_loss(result.summary)));
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const auto& a, const auto& b) { return order(a) < order(b); });
}

std::string results_csv(const Job& job, const std::vector<AdapterResult>& results) {
    std::string text =
        "name,status,dataset,r,lora_alpha,learning_rate,steps,train_loss,best_train_loss,"
        "eval_loss_first,eval_loss,eval_loss_best,exact_match,tokens,seconds,path\n";
    for (const AdapterResult& result : results) {
        const AdapterJob& adapter = job.adapter(result.adapter);
        const MetricsSummary& s = result.summary;
        const std::vector<std::string> fields{field(adapter.name),
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
                                              field("adapters/" + adapter.name)};
        text += join(fields, ",") + "\n";
    }
    return text;
}

}  // namespace loratrain

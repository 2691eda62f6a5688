#include "io/run_files/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "io/json_text.h"

namespace loratrain {

namespace {

std::optional<double> number_at(const OrderedJson& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) return std::nullopt;
    if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!found->is_number()) return std::nullopt;
    return found->get<double>();
}

/// What adapters on rollouts add (train/records/metrics.h), but for keys with a field of their own.
bool is_of_texts(std::string_view key) {
    return key == "ratio/max" || key == "entropy" || key == "reward_std" ||
           key == "reward_seconds" || key == "sample_seconds" || key == "frac_reward_zero_std" ||
           key.starts_with("completions/") ||
           (key.starts_with("rewards/") && key.ends_with("/mean"));
}

void keep_smallest(std::optional<double>& best, double value) {
    if (std::isfinite(value) && (!best || value < *best)) best = value;
}

}  // namespace

std::optional<MetricsRow> metrics_row(std::string_view line) {
    const auto json = parse_json_or_discard(line);
    const std::optional<double> step = json.is_object() ? number_at(json, "step") : std::nullopt;
    if (!step || !json["step"].is_number_integer()) return std::nullopt;
    if (*step < 0 || *step > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    MetricsRow row;
    row.step = static_cast<std::int32_t>(*step);
    row.epoch = number_at(json, "epoch");
    row.loss = number_at(json, "loss");
    row.grad_norm = number_at(json, "grad_norm");
    row.learning_rate = number_at(json, "learning_rate");
    row.tokens = number_at(json, "tokens");
    row.tokens_per_second = number_at(json, "tokens_per_second");
    row.elapsed_seconds = number_at(json, "elapsed_seconds");
    row.eval_loss = number_at(json, "eval_loss");
    row.eval_exact_match = number_at(json, "eval_exact_match");
    row.rewards_accuracies = number_at(json, "rewards/accuracies");
    row.rewards_margins = number_at(json, "rewards/margins");
    row.ratio = number_at(json, "ratio/mean");
    row.reward = number_at(json, "reward");
    row.clip_ratio = number_at(json, "clip_ratio/region_mean");
    row.kl = number_at(json, "kl");
    row.eval_rewards_accuracies = number_at(json, "eval_rewards/accuracies");
    row.eval_rewards_margins = number_at(json, "eval_rewards/margins");
    for (const auto& [key, value] : json.items()) {
        if (is_of_texts(key) && value.is_number()) row.of_texts.emplace_back(key, value);
    }
    return row;
}

std::vector<MetricsRow> metrics_rows(const std::string& text) {
    std::vector<MetricsRow> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (const auto row = metrics_row(line)) rows.push_back(*row);
    }
    return rows;
}

void MetricsSummary::add(const MetricsRow& row) {
    if (row.loss) {
        steps = std::max(steps, row.step);
        last_loss = row.loss;
        losses.add(*row.loss);
        keep_smallest(best_loss, *row.loss);
    }
    tokens += row.tokens.value_or(0.0);
    seconds = row.elapsed_seconds.value_or(seconds);
    if (row.eval_loss) {
        if (!first_eval_loss) first_eval_loss = row.eval_loss;
        last_eval_loss = row.eval_loss;
        keep_smallest(best_eval_loss, *row.eval_loss);
    }
    if (row.eval_exact_match) last_exact_match = row.eval_exact_match;
    if (row.eval_rewards_accuracies) last_exact_match = row.eval_rewards_accuracies;
}

}  // namespace loratrain

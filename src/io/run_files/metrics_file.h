#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/means.h"

namespace loratrain {

/// One line of an adapter's metrics.jsonl (train/records/metrics.h writes it). What the line lacks
/// is empty; null, which stands for a number that is not finite, is NaN.
struct MetricsRow {
    std::int32_t step = 0;
    std::optional<double> epoch;
    std::optional<double> loss;
    std::optional<double> grad_norm;
    std::optional<double> learning_rate;
    std::optional<double> tokens;
    std::optional<double> tokens_per_second;
    std::optional<double> elapsed_seconds;
    std::optional<double> eval_loss;
    std::optional<double> eval_exact_match;
    std::optional<double> rewards_accuracies;
    std::optional<double> rewards_margins;
    std::optional<double> eval_rewards_accuracies;
    std::optional<double> eval_rewards_margins;
};

/// None when the line is torn (its writer died in it) or is no object with a step.
std::optional<MetricsRow> metrics_row(std::string_view line);

/// All whole lines of the text of a metrics.jsonl.
std::vector<MetricsRow> metrics_rows(const std::string& text);

/// What an adapter's rows come to.
struct MetricsSummary {
    std::int32_t steps = 0;
    std::optional<double> last_loss;
    LastMean losses{};                ///< of steps
    std::optional<double> best_loss;  ///< smallest finite one
    std::optional<double> first_eval_loss;
    std::optional<double> last_eval_loss;
    std::optional<double> best_eval_loss;  ///< smallest finite one
    std::optional<double> last_exact_match;
    double tokens = 0.0;
    double seconds = 0.0;  ///< of training when its last step was through

    void add(const MetricsRow& row);
};

}  // namespace loratrain

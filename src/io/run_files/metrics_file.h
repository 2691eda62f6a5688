#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/means.h"

namespace loratrain {

/// Files in an adapter's folder: metrics.jsonl and generations.jsonl.

/// One line of metrics.jsonl (train/records/metrics.h writes it). A key that the line lacks is
/// empty; null, which stands for a number that is not finite, is NaN.
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
    std::optional<double> ratio;  ///< of rollouts, mean
    std::optional<double> clip_ratio;
    std::optional<double> kl;
    std::optional<double> reward;  ///< of texts that the adapter has written, mean
    /// The other keys of a line that are of rollouts.
    std::vector<std::pair<std::string, double>> of_texts;
    std::optional<double> eval_rewards_accuracies;
    std::optional<double> eval_rewards_margins;
};

/// The row of a line; none if the line is cut off (its writer died) or is no object with a step.
std::optional<MetricsRow> metrics_row(std::string_view line);

/// The rows of all whole lines of a file.
std::vector<MetricsRow> metrics_rows(const std::string& text);

/// Summary of an adapter's rows.
struct MetricsSummary {
    std::int32_t steps = 0;
    std::optional<double> last_loss;
    LastMean losses{};                ///< of steps
    std::optional<double> best_loss;  ///< smallest finite loss
    std::optional<double> first_eval_loss;
    std::optional<double> last_eval_loss;
    std::optional<double> best_eval_loss;    ///< smallest finite loss
    std::optional<double> last_exact_match;  ///< for losses of pairs: the reward accuracy
    double tokens = 0.0;
    double seconds = 0.0;  ///< of training until the end of the last step

    void add(const MetricsRow& row);
};

/// File of the texts that an adapter has written (train/generation.h). A line is
/// {"sample": 0, "prompt": [..], "generated": [..], "reference": [..], "stopped": true} with token
/// ids; "generated" includes the stop token. With a tokenizer scripts/exact_match.py adds
/// "prompt_text", "generated_text", "reference_text", "answer", "expected" and "match".
inline constexpr const char* generations_file_name = "generations.jsonl";

}  // namespace loratrain

#pragma once

#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"

namespace loratrain {

/// One adapter's line of <run.dir>/results.csv.
struct AdapterResult {
    AdapterId adapter{};
    std::string status;  ///< status_name()
    MetricsSummary summary;
};

inline constexpr const char* results_file_name = "results.csv";

/// By dataset, whose losses alone compare, in the order of the job; within one by the last eval
/// loss (that of the weights an adapter ends with), best first; those without one after them by
/// their training loss; numbers that are not finite last.
void sort_results(const Job& job, std::vector<AdapterResult>& results);

/// Mean of the last steps; none before the first.
std::optional<double> train_loss(const MetricsSummary& summary);

/// A header and a line per result, in the order given (RFC 4180; lines end with \n). What is not
/// known is empty; train_loss is the mean of the last steps (LastMean). Columns: name, status,
/// dataset, r, lora_alpha, learning_rate, steps, train_loss, best_train_loss, eval_loss_first,
/// eval_loss, eval_loss_best, exact_match, tokens, seconds, path.
std::string results_csv(const Job& job, const std::vector<AdapterResult>& results);

}  // namespace loratrain

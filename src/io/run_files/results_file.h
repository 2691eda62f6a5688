#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"

namespace loratrain {

/// What a sweep's trial comes to.
struct TrialResult {
    std::size_t rank = 0;             ///< among those of its dataset, from 1
    std::optional<double> objective;  ///< as it is written: a loss, or a share
    int rung = 0;                     ///< rungs that it has come to, its end included
    std::string reason;               ///< why it ended before its end; may be ""
};

/// One adapter's line of <run.dir>/results.csv.
struct AdapterResult {
    AdapterId adapter{};
    std::string status;  ///< status_name()
    MetricsSummary summary;
    std::optional<TrialResult> trial{};
    std::string run{};  ///< of merged ones, the folder of its run among them
};

inline constexpr const char* results_file_name = "results.csv";

/// By dataset, whose losses alone compare, in the order of the job; within one trials by their
/// rank, then others by the last eval loss (that of the weights an adapter ends with), best first;
/// those without one after them by their training loss; numbers that are not finite last.
void sort_results(const Job& job, std::vector<AdapterResult>& results);

/// Mean of the last steps; none before the first.
std::optional<double> train_loss(const MetricsSummary& summary);

/// A header and a line per result, in the order given (RFC 4180; lines end with \n). What is not
/// known is empty; train_loss is the mean of the last steps (LastMean). Columns: name, status,
/// dataset, r, lora_alpha, learning_rate, steps, train_loss, best_train_loss, eval_loss_first,
/// eval_loss, eval_loss_best, exact_match, tokens, seconds, path; of a job with a sweep also rank,
/// objective, rung, batch, dropout, targets, seed, reason.
std::string results_csv(const Job& job, const std::vector<AdapterResult>& results);

/// What the text of a results.csv says of trials, by name; empty where it is no such file.
std::map<std::string, TrialResult> trial_results_from_csv(const std::string& text);

}  // namespace loratrain

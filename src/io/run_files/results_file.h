#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"

namespace loratrain {

/// <run.dir>/results.csv: a line per adapter.

/// Result of a sweep's trial.
struct TrialResult {
    std::size_t rank = 0;             ///< among the trials of its dataset, from 1
    std::optional<double> objective;  ///< as in the file: a loss, or a share
    int rung = 0;                     ///< number of rungs reached, the end included
    std::string reason;               ///< why the trial ended early; may be ""
};

/// One adapter's line.
struct AdapterResult {
    AdapterId adapter{};
    std::string status;  ///< status_name()
    MetricsSummary summary;
    std::optional<TrialResult> trial{};
    std::string run{};  ///< in merged results, the folder of the adapter's run
};

inline constexpr const char* results_file_name = "results.csv";

/// Sorts by dataset, in the order of the job, since only losses on one dataset can be compared.
/// Within a dataset: trials by their rank; then adapters by their last eval loss, that of the
/// weights they end with, smallest first; then adapters without one by training loss. Numbers that
/// are not finite come last.
void sort_results(const Job& job, std::vector<AdapterResult>& results);

/// Mean loss of the last steps (LastMean); none before the first step.
std::optional<double> train_loss(const MetricsSummary& summary);

/// A header and a line per result, in the order given (RFC 4180; lines end with \n). Unknown values
/// are empty; train_loss is train_loss(). Columns: name, status, dataset, r, lora_alpha,
/// learning_rate, steps, train_loss, best_train_loss, eval_loss_first, eval_loss, eval_loss_best,
/// exact_match (MetricsSummary::last_exact_match), tokens, seconds, path; for a job with a sweep
/// also rank, objective, rung, batch, dropout, targets, seed, reason.
std::string results_csv(const Job& job, const std::vector<AdapterResult>& results);

/// The trials in the text of a results.csv, by adapter name; empty if the text is no such file.
std::map<std::string, TrialResult> trial_results_from_csv(const std::string& text);

}  // namespace loratrain

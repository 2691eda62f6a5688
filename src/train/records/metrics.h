#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"
#include "train/eval_result.h"

namespace loratrain {

/// One optimizer step of one adapter as metrics.jsonl records it.
struct StepMetrics {
    std::int32_t step = 0;   ///< 1 = after the first update
    double epoch = 0.0;      ///< fraction of epochs passed
    double loss = 0.0;       ///< mean over the global batch's target tokens
    double grad_norm = 0.0;  ///< before clipping
    double learning_rate = 0.0;
    std::int64_t target_tokens = 0;
    std::int64_t tokens = 0;
    double tokens_per_second = 0.0;  ///< of this adapter, since its step before
    double elapsed_seconds = 0.0;    ///< of training, over all continuations
};

/// adapters/<name>/metrics.jsonl of all adapters: one JSON object per line, either a step, keys as
/// StepMetrics, or an evaluation: step (0 = before training), eval_loss, eval_perplexity =
/// exp(eval_loss) and eval_exact_match. Of a loss with rewards a step has TRL's
/// rewards/{chosen, rejected, accuracies, margins} and logps/{chosen, rejected} (RewardMeans) too,
/// of kto kl in place of accuracies, null where there is none of a kind, and an evaluation the same
/// with eval_ before them in place of perplexity and exact match; of cit a step has
/// contrastive_loss. Of a dataset of several files
/// both have the loss of each, loss/NAME or eval_loss/NAME, null of none of its samples. An
/// evaluation joins its step's line where that is not yet written; a run that evaluates between
/// windows, or has reported it already, writes it as a line of its own, behind its step's. An
/// evaluation that comes to the same as the one before, after the same step, is not written again.
/// Lines are kept until flush(). Root rank only.
class MetricsLog {
  public:
    /// `job` outlives the log and may get more adapters.
    explicit MetricsLog(const Job& job) : job_(job) {}

    /// Drops lines after step `steps` of an adapter (a checkpoint's), so that the file continues
    /// without duplicates or gaps; steps = -1 drops the file. Evaluations after the steps in
    /// `ahead` are kept until the adapter comes to these again, which it does without evaluating:
    /// what they came to is known (trials at rungs). Returns what was kept, without these.
    std::vector<MetricsRow> restore(AdapterId adapter, std::int32_t steps,
                                    const std::set<std::int32_t>& ahead = {});
    void record(AdapterId adapter, const StepMetrics& metrics);
    void record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                           double exact_match, const FileLosses& files = {});
    void record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                           const RewardMeans& means, const FileLosses& files = {});
    /// The details of a step beside its loss (EvalResult::training), before or after that is
    /// recorded; its line waits for it.
    void record_details(AdapterId adapter, std::int32_t step, const RewardMeans& means,
                        const FileLosses& files = {});
    /// The adapter will be evaluated after a step that is not recorded yet: lines behind it wait.
    void await_evaluation(AdapterId adapter, std::int32_t step) { awaited_.emplace(adapter, step); }
    /// It will be evaluated before its first step: lines of steps wait.
    void await_first_evaluation(AdapterId adapter) { pending_[adapter].push_back({0, ""}); }
    /// Appends what was recorded to the files; returns it, of adapters that have any. `also` (may
    /// be empty) gets each line.
    std::map<AdapterId, std::vector<MetricsRow>> flush(
        const std::function<void(AdapterId, const std::string&)>& also = {});

  private:
    struct Line {
        std::int32_t step = 0;
        std::string fields;          ///< JSON members without braces; empty = awaited
        bool lacks_details = false;  ///< what record_details() is to bring

        bool is_complete() const { return !fields.empty() && !lacks_details; }
    };
    const DatasetJob& dataset_of(AdapterId adapter) const {
        return job_.dataset(job_.adapter(adapter).dataset);
    }
    std::string eval_loss_fields(AdapterId adapter, double eval_loss,
                                 const FileLosses& files) const;
    bool is_new(AdapterId adapter, std::int32_t step, double eval_loss);
    void add_evaluation(AdapterId adapter, std::int32_t step, const std::string& fields);
    void put_in_order(AdapterId adapter) const;
    std::string path(AdapterId adapter) const;

    const Job& job_;
    std::map<AdapterId, std::vector<Line>> pending_;
    std::set<std::pair<AdapterId, std::int32_t>> awaited_;  ///< after these steps
    /// Of steps that are not recorded yet.
    std::map<std::pair<AdapterId, std::int32_t>, std::string> details_;
    /// Step and loss of an adapter's last evaluation: one that is made again after a restart is no
    /// new one.
    std::map<AdapterId, std::pair<std::int32_t, double>> last_evaluations_;
    /// Of steps that an adapter is to take again; they are in the file, before their steps.
    std::map<std::pair<AdapterId, std::int32_t>, std::string> ahead_;
    std::set<AdapterId> out_of_order_;
};

}  // namespace loratrain

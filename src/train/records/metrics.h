#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"
#include "train/eval_result.h"

namespace loratrain {

/// The metrics.jsonl of each adapter.

/// An optimizer step of an adapter as metrics.jsonl records it.
struct StepMetrics {
    std::int32_t step = 0;   ///< 1 = after the first update
    double epoch = 0.0;      ///< fraction of epochs passed
    double loss = 0.0;       ///< mean over the global batch's target tokens
    double grad_norm = 0.0;  ///< before clipping
    double learning_rate = 0.0;
    std::int64_t target_tokens = 0;
    std::int64_t tokens = 0;
    double tokens_per_second = 0.0;  ///< of this adapter, since its last step
    double elapsed_seconds = 0.0;    ///< training time over all starts of the run
    /// Arrivals::Batch::stale; none = they are not counted.
    std::optional<std::int32_t> stale_rollouts = {};
};

/// Of the texts of a step of an adapter with rewards (train/rewards/rollout_file.h).
struct RolloutMeans {
    double reward = 0.0;
    double deviation = 0.0;     ///< of the rewards of a group, mean over groups
    double equal_groups = 0.0;  ///< share of groups whose rewards are equal
    double length = 0.0;        ///< tokens
    double cut_off = 0.0;       ///< share of texts that no stop token has ended
    std::vector<std::pair<std::string, double>> parts = {};  ///< other numbers of the program
    std::optional<double> sample_seconds = {};  ///< of all texts that were written together
    std::optional<double> reward_seconds = {};  ///< until the program had answered
};

/// adapters/<name>/metrics.jsonl of all adapters: one JSON object per line.
/// | line | keys |
/// |---|---|
/// | step | StepMetrics |
/// | evaluation | step (0 = before training), eval_loss, eval_perplexity = exp(eval_loss), |
/// | | eval_exact_match |
/// | step, loss with rewards | also rewards/{chosen, rejected, accuracies, margins}, logps/* |
/// | step, kto | kl in place of rewards/accuracies |
/// | evaluation, loss with rewards | rewards and logps with eval_; no perplexity, no exact match |
/// | step, cit | contrastive_loss |
/// | step, rewards | reward, reward_std, frac_reward_zero_std, completions/{mean_length, |
/// | | clipped_ratio}, rewards/NAME/mean: names of TRL; sample_seconds, reward_seconds |
/// | several files | loss/NAME, eval_loss/NAME |
/// Rewards are TRL's (RewardMeans). A value is null without samples of its kind. An evaluation
/// joins the line of its step if that is not written yet; otherwise it is a line of its own after
/// it. A repeated evaluation with an equal result after the same step is not written. Lines are
/// kept until flush(). Root rank only.
class MetricsLog {
  public:
    /// `job` outlives the log and may get more adapters.
    explicit MetricsLog(const Job& job) : job_(job) {}

    /// Drops lines after step `steps` of an adapter (of a checkpoint), so that the file continues
    /// without duplicates or gaps; -1 drops the file. Evaluations after the steps in `ahead` are
    /// kept until the adapter takes these steps again, since they are not made again (trials at
    /// rungs). Returns the kept lines up to step `steps`.
    std::vector<MetricsRow> restore(AdapterId adapter, std::int32_t steps,
                                    const std::set<std::int32_t>& ahead = {});
    void record(AdapterId adapter, const StepMetrics& metrics);
    void record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                           double exact_match, const FileLosses& files = {});
    void record_evaluation(AdapterId adapter, std::int32_t step, double eval_loss,
                           const RewardMeans& means, const FileLosses& files = {});
    /// Details of a step (EvalResult::training), before or after record(). The step's line waits
    /// for them.
    void record_details(AdapterId adapter, std::int32_t step, const RewardMeans& means,
                        const FileLosses& files = {});
    /// Before record() of the step that trains on them.
    void note_rollouts(AdapterId adapter, std::int32_t step, const RolloutMeans& means);
    /// The adapter will be evaluated after a step that is not recorded yet: later lines wait.
    void await_evaluation(AdapterId adapter, std::int32_t step) { awaited_.emplace(adapter, step); }
    /// The adapter will be evaluated before its first step: lines of steps wait.
    void await_first_evaluation(AdapterId adapter) { pending_[adapter].push_back({0, ""}); }
    /// Appends all recorded lines to the files and returns them by adapter. `also` (may be empty)
    /// gets each line.
    std::map<AdapterId, std::vector<MetricsRow>> flush(
        const std::function<void(AdapterId, const std::string&)>& also = {});

  private:
    struct Line {
        std::int32_t step = 0;
        std::string fields;          ///< JSON members without braces; empty = awaited
        bool lacks_details = false;  ///< record_details() will bring them

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
    /// Details of steps that are not recorded yet.
    std::map<std::pair<AdapterId, std::int32_t>, std::string> details_;
    std::map<std::pair<AdapterId, std::int32_t>, std::string> rollouts_;  ///< note_rollouts()
    /// Step and loss of an adapter's last evaluation, to recognise one that is repeated after a
    /// restart.
    std::map<AdapterId, std::pair<std::int32_t, double>> last_evaluations_;
    /// Evaluations of steps that an adapter will take again; they are in the file, before their
    /// steps.
    std::map<std::pair<AdapterId, std::int32_t>, std::string> ahead_;
    std::set<AdapterId> out_of_order_;
};

}  // namespace loratrain

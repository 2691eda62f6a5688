#pragma once

#include <map>
#include <vector>

#include "config/job.h"
#include "config/start_key.h"
#include "train/worker.h"

namespace loratrain {

/// Evaluations of a worker, and early stopping by their results.

/// Evaluations, and early stopping by their results. Results come while later steps train. If a
/// result may end an adapter, no round is planned before it has come, so that the adapter never
/// takes a step too many; evaluations of other adapters fill the pipeline meanwhile.
class EvaluationService : public Service {
  public:
    explicit EvaluationService(Worker& worker) : worker_(worker) {}

    bool awaits_results(std::int32_t round) const override;
    bool needs_drain(std::int32_t round) override;
    /// Removes adapters that an evaluation has ended.
    bool change(const Progress& planned, StreamChange& change) override;
    std::int32_t next_event(const Progress& planned) const override;
    void add_deciding(const Progress& planned, std::vector<AdapterId>& adapters) const override;
    void on_step(const BatchResult&) override { take_in(); }
    void on_evaluation(const EvalResult& result) override;

    // With an empty pipeline.

    /// Evaluates adapters before their first step; once for all that start alike (StartKey).
    void evaluate_newcomers();
    /// Evaluates on all eval samples, or on the first `most_samples` of each dataset.
    void evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples = 0);
    /// After evaluate(): notes best states, and ends adapters early.
    void judge(const std::vector<AdapterId>& adapters);

    /// The adapter has eval samples, has taken no step, and has not been evaluated.
    bool awaits_first(AdapterId adapter) const;
    /// An adapter that starts alike has been evaluated.
    bool knows_start(AdapterId adapter) const;
    /// Takes the result of that adapter.
    void take_start(AdapterId adapter);

  private:
    void report_start(AdapterId first, const std::vector<AdapterId>& alike) const;
    const AdapterState* recalled_start(AdapterId adapter) const;
    bool goes_on_undrained() const;
    bool may_end_at(AdapterId adapter, std::int32_t round) const;
    void take_in();
    void take_in(const EvalResult& result, bool is_shared = false);
    void judge(AdapterId adapter, std::int32_t step);

    Worker& worker_;
    std::map<StartKey, EvalResult> starts_;  ///< evaluations before the first step
    std::vector<EvalResult> results_;        ///< of the stream; the table has them not yet
};

}  // namespace loratrain

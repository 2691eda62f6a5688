#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/objective/reference_losses.h"
#include "train/start_key.h"
#include "train/worker.h"

namespace loratrain {

/// Evaluations, and what they decide: whether an adapter ends early. Their results come while the
/// steps behind them are under way. Where a result may end an adapter, no round is planned until it
/// is there: the adapter never takes a step more. What that leaves of the pipeline, evaluations of
/// others fill. What references make of datasets is found here too, before training.
class EvaluationService : public Service {
  public:
    explicit EvaluationService(Worker& worker) : worker_(worker) {}

    bool awaits_results(std::int32_t round) const override;
    bool needs_drain(std::int32_t round) override;
    /// Adapters that an evaluation has ended.
    bool change(const Progress& planned, StreamChange& change) override;
    std::int32_t next_event(const Progress& planned) const override;
    void add_deciding(const Progress& planned, std::vector<AdapterId>& adapters) const override;
    void on_step(const BatchResult&) override { take_in(); }
    void on_evaluation(const EvalResult& result) override;

    // With an empty pipeline.

    /// What their references make of the data of adapters that train, where objectives ask: as an
    /// earlier start of the run found it, or from the plan alone, so that it repeats to the bit.
    /// What workers find depends on their ranks: they keep nothing.
    void refer_newcomers();
    /// Adapters before their first step, once for all that start alike.
    void evaluate_newcomers();
    /// On all eval samples, or on the first `most_samples` of each dataset.
    void evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples = 0);
    /// Behind evaluate(): the best state, and an early end.
    void judge(const std::vector<AdapterId>& adapters);

    /// Its reference, if it has one, is known.
    bool knows_reference(AdapterId adapter) const;
    /// It has taken no step, and an evaluation of it then is not known yet.
    bool awaits_first(AdapterId adapter) const;
    /// An adapter that starts alike was evaluated.
    bool knows_start(AdapterId adapter) const;
    /// The evaluation before its first step is that one.
    void take_start(AdapterId adapter);

  private:
    void refer(AdapterId adapter);
    void report_start(AdapterId first, const std::vector<AdapterId>& alike) const;
    const AdapterState* recalled_start(AdapterId adapter) const;
    bool goes_on_undrained() const;
    bool may_end_at(AdapterId adapter, std::int32_t round) const;
    void take_in();
    void take_in(const EvalResult& result, bool is_shared = false);
    void judge(AdapterId adapter, std::int32_t step);

    Worker& worker_;
    std::set<ReferenceId> referred_;         ///< whose losses are known
    std::map<StartKey, EvalResult> starts_;  ///< evaluations before the first step
    std::vector<EvalResult> results_;        ///< of the stream, not taken in yet
};

}  // namespace loratrain

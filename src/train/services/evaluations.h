#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "model/objective/reference_losses.h"
#include "train/worker.h"

namespace loratrain {

/// What decides an adapter's evaluation before its first step. Adapters with equal keys come to the
/// same numbers there, so one evaluation is made for all of them.
struct StartKey {
    ReferenceId reference;  ///< the dataset, and what its samples are compared with
    LossJob loss;           ///< what an evaluation takes of it
    std::string form;       ///< "" = it begins as the base model; else what it computes beside that
    friend auto operator<=>(const StartKey&, const StartKey&) = default;
};

/// None = no other adapter is known to begin alike: it has an init_from, its first factors come
/// from W and cancel but for rounding (PiSSA, OLoRA), or it is DoRA with patterns. LoRA and VeRA
/// begin as the base model whatever else their keys say, as their product begins with exact zeros.
/// DoRA's rows are scaled by m / |W|, which may round: it begins as DoRA on the same linears does.
std::optional<StartKey> start_key(const AdapterJob& adapter);

/// Evaluations, and what they decide: whether an adapter ends early. Their results come while the
/// steps behind them are under way. Where a result may end an adapter, no round is planned until it
/// is there: the adapter never takes a step more. What that leaves of the pipeline, evaluations of
/// others fill.
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

    /// Adapters before their first step, once for all that start alike.
    void evaluate_newcomers();
    /// On all eval samples, or on the first `most_samples` of each dataset.
    void evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples = 0);
    /// Behind evaluate(): the best state, and an early end.
    void judge(const std::vector<AdapterId>& adapters);

    /// It has taken no step, and an evaluation of it then is not known yet.
    bool awaits_first(AdapterId adapter) const;
    /// An adapter that starts alike was evaluated.
    bool knows_start(AdapterId adapter) const;
    /// The evaluation before its first step is that one.
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
    std::vector<EvalResult> results_;        ///< of the stream, not taken in yet
};

}  // namespace loratrain

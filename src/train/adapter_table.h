#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/admission.h"
#include "plan/schedule/plan_window.h"
#include "train/adapter_run.h"

namespace loratrain {

/// What the adapters that are not finished have still to train.
struct WorkLeft {
    std::int32_t rounds = 0;  ///< at least so many, more where adapters wait for each other
    double tokens = 0.0;      ///< a step counts as the mean step of an epoch
};

/// The adapters of a run per AdapterId, and how far each is. Of adapters that other workers own the
/// table knows the states alone. When a run grows, only the table is updated. Rank 0 of a worker
/// only.
class AdapterTable {
  public:
    /// The adapters of `job`, at their start. The arguments outlive the table.
    AdapterTable(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets);

    /// Goes on from a checkpoint: adapters that have got more steps than they had train again.
    void restore(const RunState& run);
    /// Goes into checkpoints.
    DeploymentRecord& deployment() { return deployment_; }
    /// For a checkpoint; those that are not owned are as if they had not begun.
    RunState state(double elapsed_seconds) const;
    /// The arguments have got more adapters: they wait. Returns them.
    std::vector<AdapterId> grow();

    std::size_t size() const { return rows_.size(); }
    std::vector<AdapterId> all() const { return from(0); }
    AdapterRun& operator[](AdapterId adapter) { return rows_[index(adapter)]; }
    const AdapterRun& operator[](AdapterId adapter) const { return rows_[index(adapter)]; }

    /// The run's, as the pipeline was last empty.
    std::int32_t round() const { return round_; }
    void reached(std::int32_t round) { round_ = round; }

    /// Of those that are unfinished, these train and the others wait, parked where they have no
    /// decision.
    void admit(const std::vector<AdapterId>& adapters);
    std::vector<AdapterId> running() const;
    /// None is unfinished.
    bool finished() const;
    bool any_failed() const;
    /// One that is owned waits.
    bool any_waiting() const;

    std::int32_t steps_left(AdapterId adapter) const;
    /// The step of its next rung, if it has rungs (plan/rungs.h) before its last step, else that.
    std::int32_t next_rung(AdapterId adapter) const;
    std::int32_t steps_to_rung(AdapterId adapter) const;
    /// The step where it may train to for now: without a decision it does not take its last step.
    std::int32_t next_stop(AdapterId adapter) const;
    std::int32_t steps_to_stop(AdapterId adapter) const;
    WorkLeft work_left() const;
    /// For admission; those without a decision claim nothing.
    std::vector<AdapterClaim> claims() const;
    /// For a stream of those that are running.
    Progress progress() const;

    // The stream under way, or the one that has just ended.

    /// A stream begins at the run's round with the adapters that are running.
    void begin_stream();
    /// The pipeline is empty: all stages have all steps of the stream.
    void end_stream(std::int32_t round);
    /// Adapters that are in the stream or have been, ascending.
    std::vector<AdapterId> in_stream() const;
    /// Steps that the adapter may still take in the stream.
    std::int32_t steps_to_come(AdapterId adapter) const;
    /// Steps that the stream has planned for it before the round.
    std::int32_t steps_before(AdapterId adapter, std::int32_t round) const;
    /// Whether steps that the stream has planned for it lie behind the round.
    bool trains_beyond(AdapterId adapter, std::int32_t round) const;
    bool has_eval_samples(AdapterId adapter) const;
    /// Its last step, if it has eval samples, has been evaluated in the stream.
    bool is_evaluated(AdapterId adapter) const;
    /// Evaluations of all behind rounds of the stream before this one, of an adapter that trains
    /// on, that are due and not taken in.
    std::int32_t evaluations_pending(AdapterId adapter, std::int32_t round) const;
    /// The stream evaluates the adapter behind this batch.
    bool is_evaluated_behind(const BatchPlan& batch) const;

    // Trials at rungs.

    /// The job's trials may end at rungs (plan/rungs.h).
    bool has_rungs() const;
    /// With the last round before this one the trial comes to a rung.
    bool comes_to_rung(AdapterId adapter, std::int32_t round) const;
    /// An evaluation that the stream has behind these steps of the trial, as it is at a rung there.
    bool is_at_rung(AdapterId adapter, std::int32_t step) const;
    /// Rungs of the trial lie at its last step: its end counts at them.
    bool ends_at_rungs(AdapterId adapter) const;

  private:
    void add_rows(AdapterStatus status);
    std::vector<AdapterId> from(std::size_t first) const;

    const Job& job_;
    const Plan& plan_;
    const std::vector<DatasetInfo>& datasets_;
    std::vector<AdapterRun> rows_;
    std::int32_t round_ = 0;
    DeploymentRecord deployment_;
};

}  // namespace loratrain

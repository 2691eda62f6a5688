#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/admission_rules.h"
#include "plan/schedule/plan_window.h"
#include "train/adapter_run.h"

namespace loratrain {

/// The table of a run's adapters and their progress.

/// Work that unfinished adapters have left.
struct WorkLeft {
    std::int32_t rounds = 0;  ///< lower bound: adapters may wait for each other
    double tokens = 0.0;      ///< every step counts as the mean step of an epoch
};

/// Table of a run's adapters and their progress, by AdapterId. For adapters that other workers own
/// it has the states only. Rank 0 of a worker only.
class AdapterTable {
  public:
    /// All adapters of `job` at step 0. The arguments outlive the table.
    AdapterTable(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets);

    /// Continues from a checkpoint. A finished adapter trains again if it has more steps now.
    void restore(const RunState& run);
    /// Which adapters the deployment was found for. Checkpoints keep it.
    DeploymentRecord& deployment() { return deployment_; }
    /// State for a checkpoint. Adapters that are not owned count as not begun.
    RunState state(double elapsed_seconds) const;
    /// Adds the adapters that job and plan have got since. They wait. Returns them.
    std::vector<AdapterId> grow();

    std::size_t size() const { return rows_.size(); }
    std::vector<AdapterId> all() const { return from(0); }
    AdapterRun& operator[](AdapterId adapter) { return rows_[index(adapter)]; }
    const AdapterRun& operator[](AdapterId adapter) const { return rows_[index(adapter)]; }

    /// The run's round when the pipeline was last empty.
    std::int32_t round() const { return round_; }
    void reached(std::int32_t round) { round_ = round; }

    /// `adapters` train. All other unfinished adapters wait; trials without a decision are parked.
    void admit(const std::vector<AdapterId>& adapters);
    std::vector<AdapterId> running() const;
    /// No adapter is unfinished.
    bool finished() const;
    bool any_failed() const;
    /// Some owned adapter waits.
    bool any_waiting() const;

    std::int32_t steps_left(AdapterId adapter) const;
    /// Its dataset grows (DatasetJob::grows).
    bool grows(AdapterId adapter) const;
    /// Some adapter that is owned and unfinished has a dataset that grows.
    bool any_grows() const;
    /// An adapter may join those that train: one waits, one has rungs, or one's dataset grows.
    bool any_may_come() const { return any_waiting() || has_rungs() || any_grows(); }
    /// The batch behind `steps` steps is there, as it always is of data that do not grow.
    bool has_batch(AdapterId adapter, std::int32_t steps) const;
    /// Step of the adapter's next rung (plan/rungs.h), or its last step if no rung comes before.
    std::int32_t next_rung(AdapterId adapter) const;
    std::int32_t steps_to_rung(AdapterId adapter) const;
    /// Step up to which the adapter may train now. Without a decision it does not take its last
    /// step.
    std::int32_t next_stop(AdapterId adapter) const;
    std::int32_t steps_to_stop(AdapterId adapter) const;
    WorkLeft work_left() const;
    /// Claims for admission (plan/schedule/admission_rules.h). Trials without a decision claim
    /// nothing.
    std::vector<AdapterClaim> claims() const;
    /// Progress that a stream of the running adapters starts from.
    Progress progress() const;

    // The current stream, or the one that has just ended.

    /// A stream begins at round() with the running adapters.
    void begin_stream();
    /// The stream has ended: the pipeline is empty, all stages have all steps.
    void end_stream(std::int32_t round);
    /// Adapters that are or were in the stream, ascending.
    std::vector<AdapterId> in_stream() const;
    /// Steps that the adapter may still take in the stream.
    std::int32_t steps_to_come(AdapterId adapter) const;
    /// Steps of the adapter that the stream has planned before `round`.
    std::int32_t steps_before(AdapterId adapter, std::int32_t round) const;
    /// The stream has planned steps of the adapter after `round`.
    bool trains_beyond(AdapterId adapter, std::int32_t round) const;
    bool has_eval_samples(AdapterId adapter) const;
    /// The adapter has no eval samples, or its last step was evaluated in the stream.
    bool is_evaluated(AdapterId adapter) const;
    /// Evaluations of all adapters (eval.every_steps) that are due before `round` and of which the
    /// table has no result for this adapter, which trains on.
    std::int32_t evaluations_pending(AdapterId adapter, std::int32_t round) const;
    /// The stream evaluates the adapter after this batch.
    bool is_evaluated_behind(const BatchPlan& batch) const;

    // Trials at rungs.

    /// Trials of the job may end at rungs (plan/rungs.h).
    bool has_rungs() const;
    /// The trial reaches a rung in the last round before `round`.
    bool comes_to_rung(AdapterId adapter, std::int32_t round) const;
    /// The stream evaluates the trial after `step` steps because it is at a rung then.
    bool is_at_rung(AdapterId adapter, std::int32_t step) const;
    /// Some rungs of the trial lie at its last step: its end counts at them.
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

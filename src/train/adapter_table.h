#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/admission.h"
#include "plan/schedule/plan_window.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// One adapter of a run.
struct AdapterRow {
    AdapterState state;            ///< what checkpoints keep
    double tokens_per_step = 0.0;  ///< of the mean step of an epoch
    double last_batch_time = 0.0;  ///< RunClock::elapsed() as its last batch ended; 0 = none yet
    bool held = true;              ///< false: on a worker (train/workers/), one that others have
};

/// What the adapters that are not finished have still to train.
struct WorkLeft {
    std::int32_t rounds = 0;  ///< at least so many, more where adapters wait for each other
    double tokens = 0.0;      ///< a step counts as the mean step of an epoch
};

/// The adapters of a run per AdapterId, and how far it is. Of those that it does not hold it knows
/// the states alone. A run that grows tells only the table:
/// what is kept elsewhere per adapter is keyed by AdapterId and begins when the adapter does. Rank
/// 0 only.
class AdapterTable {
  public:
    /// The adapters of `job`, at their start. The arguments outlive the table.
    AdapterTable(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets);

    /// Goes on from a checkpoint: adapters that have got more steps than they had train again.
    void restore(const RunState& run);
    /// Goes into checkpoints.
    DeploymentRecord& deployment() { return deployment_; }
    /// For a checkpoint; those that are not held are as if they had not begun.
    RunState state(double elapsed_seconds) const;
    /// The arguments have got more adapters: they wait. Returns them.
    std::vector<AdapterId> grow();

    std::size_t size() const { return rows_.size(); }
    std::vector<AdapterId> all() const { return from(0); }
    AdapterRow& operator[](AdapterId adapter) { return rows_[index(adapter)]; }
    const AdapterRow& operator[](AdapterId adapter) const { return rows_[index(adapter)]; }

    /// The run's, as the pipeline was last empty.
    std::int32_t round() const { return round_; }
    void reached(std::int32_t round) { round_ = round; }

    /// Of those that are unfinished, these train and the others wait, parked where they have no
    /// verdict.
    void admit(const std::vector<AdapterId>& adapters);
    std::vector<AdapterId> running() const;
    /// None is unfinished.
    bool finished() const;
    bool any_failed() const;
    /// One that is held waits.
    bool any_waiting() const;

    std::int32_t steps_left(AdapterId adapter) const;
    /// The step of its next rung, if it has rungs (plan/rungs.h) before its last step, else that.
    std::int32_t next_rung(AdapterId adapter) const;
    std::int32_t steps_to_rung(AdapterId adapter) const;
    /// The step where it may train to for now: without a verdict it does not take its last step.
    std::int32_t next_stop(AdapterId adapter) const;
    std::int32_t steps_to_stop(AdapterId adapter) const;
    WorkLeft work_left() const;
    /// For admission; those without a verdict claim nothing.
    std::vector<AdapterClaim> claims() const;
    /// For a stream of those that are running.
    Progress progress() const;

  private:
    void add_rows(AdapterStatus status);
    std::vector<AdapterId> from(std::size_t first) const;

    const Job& job_;
    const Plan& plan_;
    const std::vector<DatasetInfo>& datasets_;
    std::vector<AdapterRow> rows_;
    std::int32_t round_ = 0;
    DeploymentRecord deployment_;
};

}  // namespace loratrain

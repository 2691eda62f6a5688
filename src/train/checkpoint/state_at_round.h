#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// The state of a run between two rounds, collected on rank 0 while later rounds train. Steps and
/// evaluations of an adapter are reported in order; an evaluation may be reported after later
/// steps.
class StateAtRound {
  public:
    /// Where an adapter is between those rounds.
    struct Goal {
        std::int32_t steps = 0;
        std::int32_t awaited_evaluation = -1;  ///< after so many steps, at most `steps`; -1 = none
        bool ended = false;                    ///< nothing of it changes in this stream any more
    };

    /// `goals` by AdapterId.
    StateAtRound(std::int32_t round, const std::vector<Goal>& goals);

    /// The adapter's state now. Call it at the start and after every step.
    void note(AdapterId adapter, const AdapterState& now, double elapsed_seconds);
    /// The adapter's state after an evaluation, which is of the state after `step` steps.
    void note_evaluation(AdapterId adapter, std::int32_t step, const AdapterState& now);

    /// True if nothing is missing. Adapters that have ended may still wait for
    /// StepService::decide_end().
    bool is_known() const;
    /// The state. `now`: the run as it is; adapters that have ended are taken from there.
    RunState state(const RunState& now) const;

    std::int32_t round() const { return round_; }
    /// Steps of the adapter by then.
    std::int32_t steps(AdapterId adapter) const { return rows_[index(adapter)].goal.steps; }
    /// Adapters that do not change any more.
    std::vector<AdapterId> ended() const;

  private:
    struct Row {
        Goal goal;
        bool stepped = false;
        AdapterState state;
    };

    std::int32_t round_;
    double elapsed_seconds_ = 0.0;
    std::vector<Row> rows_;
};

}  // namespace loratrain

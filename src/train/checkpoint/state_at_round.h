#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// The state of a run between two rounds, of which rank 0 learns adapter by adapter while the
/// rounds behind are under way: steps in order, evaluations in order, but an evaluation also after
/// later steps.
class StateAtRound {
  public:
    /// What an adapter has come to by then.
    struct Goal {
        std::int32_t steps = 0;
        std::int32_t awaited_evaluation = -1;  ///< behind so many steps, at most those; -1 = none
        bool ended = false;                    ///< nothing of it changes while the stream goes on
    };

    /// `goals` by AdapterId.
    StateAtRound(std::int32_t round, const std::vector<Goal>& goals);

    /// What is known of an adapter now; to be called at the start and whenever it has taken a step.
    void note(AdapterId adapter, const AdapterState& now, double elapsed_seconds);
    /// The same after an evaluation behind so many of its steps.
    void note_evaluation(AdapterId adapter, std::int32_t step, const AdapterState& now);

    /// Nothing is missing; but those that have ended may still wait for StepService::decide_end().
    bool is_known() const;
    /// `now`: the run as it is, which has those that have ended.
    RunState state(const RunState& now) const;

    std::int32_t round() const { return round_; }
    /// That an adapter has taken by then.
    std::int32_t steps(AdapterId adapter) const { return rows_[index(adapter)].goal.steps; }
    /// Those that do not change any more.
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

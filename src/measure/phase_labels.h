#pragma once

#include <cstddef>
#include <optional>

#include "base/activity.h"
#include "io/run_files/run_account.h"
#include "plan/action_traits.h"

namespace loratrain {

/// The phase of a run that a rank's main thread is in: that of the action or wait under way, else
/// what activity.h says. Knows no time.
class PhaseLabels {
  public:
    void begin_action(ActionKind kind, bool evaluation);
    void end_action();
    /// A wait, in an action or beside one; waits do not nest.
    void begin_wait();
    void end_wait();
    /// The main thread has begun something, or goes back to it. True: the phase changes.
    bool follow(const activity::State& state);

    RunPhase now() const { return now_; }

  private:
    RunPhase phase_of_actions() const { return wait_ ? *wait_ : *action_; }
    bool amid_actions() const { return wait_ || action_; }
    void resume();

    std::optional<ActionKind> kind_;
    std::optional<RunPhase> action_;
    std::optional<RunPhase> wait_;
    RunPhase now_ = RunPhase::other;
};

/// What a rank has done so far, by phase.
struct PhaseAccount {
    PhaseSeconds seconds{};
    KindSeconds forward{};   ///< as the plan's costs predict it, of the training microbatches
    KindSeconds backward{};  ///< the same
    double tokens = 0.0;     ///< of these microbatches, as the stage saw them, with padding
    double squares = 0.0;    ///< MicrobatchLoad::squares of these

    double total() const;  ///< of all phases' seconds
    /// Seconds of the stream at points, and the phase from each of them on to the next.
    void add(const std::vector<double>& points, const std::vector<RunPhase>& phases);
};

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <optional>

#include "train/checkpoint/run_state.h"

namespace loratrain {

/// How far an adapter is in the stream of windows under way.
enum class Phase : std::uint8_t {
    outside,    ///< the stream has no steps of it
    training,   ///< windows that are planned may have steps of it
    stepped,    ///< all stages have the last step that the stream has of it
    exporting,  ///< its parameters are on their way to rank 0, or its files are being written
    written,    ///< its files are in the run directory
};
const char* phase_name(Phase phase);

/// An adapter's part of the stream under way, or of the one that has just ended. An adapter trains
/// in each round from `first_round` on, one step a round.
class StreamPart {
  public:
    Phase phase() const { return phase_; }
    bool joined() const { return joined_; }
    /// Joins the stream before the round, with so many steps taken or planned. It may have been in
    /// the stream before, and have left for a while.
    void join(std::int32_t round, std::int32_t steps);
    /// Goes on to another phase; Error where none leads there. training: only by join().
    void enter(Phase next);

    std::int32_t first_round() const { return first_round_; }
    /// Steps that it had before that round.
    std::int32_t first_steps() const { return first_steps_; }

    /// By an order, an evaluation or for a while it leaves the stream with so many steps.
    void leave_at(std::int32_t steps) { last_step_ = steps; }
    std::optional<std::int32_t> last_step() const { return last_step_; }

    /// The last evaluation that the table has taken in was behind so many steps.
    void note_evaluation(std::int32_t step) { evaluated_ = step; }
    std::optional<std::int32_t> evaluated() const { return evaluated_; }
    void forget_evaluation() { evaluated_.reset(); }

    bool exported() const { return phase_ == Phase::exporting || phase_ == Phase::written; }
    bool written() const { return phase_ == Phase::written; }
    /// All stages have its last step.
    bool stepped() const { return phase_ >= Phase::stepped; }

  private:
    Phase phase_ = Phase::outside;
    bool joined_ = false;
    std::int32_t first_round_ = 0;
    std::int32_t first_steps_ = 0;
    std::optional<std::int32_t> last_step_;
    std::optional<std::int32_t> evaluated_;
};

/// All that rank 0 of a worker knows of an adapter.
struct AdapterRun {
    AdapterState state;            ///< what checkpoints keep
    double tokens_per_step = 0.0;  ///< of the mean step of an epoch
    double last_batch_time = 0.0;  ///< RunClock::elapsed() as its last batch ended; 0 = none yet
    bool owned = true;             ///< false: another worker trains it (train/workers/)
    StreamPart stream;             ///< of this stream
    int bests_to_write = 0;        ///< states found to be its best whose files are not written
    bool end_reported = false;     ///< the dispatcher knows that it has ended
    bool reports_rung = false;     ///< it is at a rung of which the dispatcher does not know yet
};

}  // namespace loratrain

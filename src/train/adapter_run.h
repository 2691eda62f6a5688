#pragma once

#include <cstdint>
#include <optional>

#include "train/checkpoint/run_state.h"

namespace loratrain {

/// What rank 0 of a worker knows of an adapter while it trains.

/// How far an adapter is in the current stream of windows.
enum class Phase : std::uint8_t {
    outside,    ///< the stream has no steps of the adapter
    training,   ///< planned windows may have steps of the adapter
    stepped,    ///< all stages have taken the adapter's last step in the stream
    exporting,  ///< parameters travel to rank 0, or files are being written
    written,    ///< the exported files are in the run directory
};
const char* phase_name(Phase phase);

/// An adapter's part in the current stream, or in the last one. The adapter takes one step in each
/// round from `first_round` on.
class StreamPart {
  public:
    Phase phase() const { return phase_; }
    bool joined() const { return joined_; }
    /// The adapter joins the stream before `round` with `steps` steps taken or planned. It may join
    /// again after it has left for a while.
    void join(std::int32_t round, std::int32_t steps);
    /// Changes the phase. Error for an impossible change. Phase::training is entered by join()
    /// only.
    void enter(Phase next);

    std::int32_t first_round() const { return first_round_; }
    /// Steps taken before first_round().
    std::int32_t first_steps() const { return first_steps_; }

    /// The adapter leaves the stream after `steps` steps: by order, by an evaluation, or for a
    /// while.
    void leave_at(std::int32_t steps) { last_step_ = steps; }
    std::optional<std::int32_t> last_step() const { return last_step_; }

    /// The table has an evaluation of the adapter after `step` steps.
    void note_evaluation(std::int32_t step) { evaluated_ = step; }
    std::optional<std::int32_t> evaluated() const { return evaluated_; }
    void forget_evaluation() { evaluated_.reset(); }

    bool exported() const { return phase_ == Phase::exporting || phase_ == Phase::written; }
    bool written() const { return phase_ == Phase::written; }
    /// All stages have taken the adapter's last step.
    bool stepped() const { return phase_ >= Phase::stepped; }

  private:
    Phase phase_ = Phase::outside;
    bool joined_ = false;
    std::int32_t first_round_ = 0;
    std::int32_t first_steps_ = 0;
    std::optional<std::int32_t> last_step_;
    std::optional<std::int32_t> evaluated_;
};

/// Everything that rank 0 of a worker knows about an adapter.
struct AdapterRun {
    AdapterState state;            ///< what checkpoints keep
    double tokens_per_step = 0.0;  ///< mean over an epoch
    double last_batch_time = 0.0;  ///< RunClock::elapsed() when its last batch ended; 0 = none
    bool owned = true;             ///< false: another worker trains it (train/workers/)
    StreamPart stream;             ///< in the current stream
    int bests_to_write = 0;        ///< best states whose files are not written
    bool end_reported = false;     ///< the dispatcher knows that it has ended
    bool reports_rung = false;     ///< at a rung that the dispatcher does not know of yet
};

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// A forward or backward of one microbatch on one stage.
struct ComputeStep {
    bool backward = false;
    std::int32_t microbatch = 0;  ///< number in the stream
};

/// What every stage computes next, in order.
using ComputeOrder = std::vector<std::vector<ComputeStep>>;

/// The order in which each stage computes, by list scheduling: all stages are simulated with the
/// times of plan.costs; messages are free. A free stage starts what is ready; the first stage
/// prefers a forward, the others a backward (mLoRA section 3, priority rules). Forwards and
/// backwards each go in microbatch order. A forward waits while max_in_flight - stage (at least 1)
/// microbatches are in flight there; on the first stage also until the previous batch of each of
/// its adapters has had its last backward there. Evaluation has forwards only. Results of the
/// training do not depend on the order.
class PipelineOrder {
  public:
    PipelineOrder(const Plan& plan, bool evaluation);

    /// More of the schedule: batches and microbatches of the stream's next window.
    void add(const Window& window);

    /// What starts from where the last call ended up to the first stage's last known forward: what
    /// is added later cannot change it. With `to_the_end` everything.
    ComputeOrder advance(bool to_the_end);

    /// Most microbatches in flight so far, per stage.
    const std::vector<std::int32_t>& peak_in_flight() const { return peak_in_flight_; }

  private:
    struct StageState {
        double busy_until = 0.0;
        std::int32_t forwarded = 0;
        std::int32_t backwarded = 0;
        std::int32_t limit = 1;
        std::vector<double> forward_end;   ///< per microbatch; infinite = not begun
        std::vector<double> backward_end;  ///< likewise
    };

    void start_ready(std::size_t stage);
    bool forward_ready(std::size_t stage) const;
    bool backward_ready(std::size_t stage) const;
    void start(std::size_t stage, bool backward);
    double next_end() const;
    bool first_stage_needs_more() const;

    const Plan& plan_;
    bool evaluation_;
    double now_ = 0.0;
    std::vector<MicrobatchLoad> loads_;
    std::vector<std::int32_t> required_;        ///< per microbatch: backwards before its forward
    std::vector<std::int32_t> finished_after_;  ///< per adapter: backwards that end its last batch
    std::vector<StageState> stages_;
    std::vector<std::int32_t> peak_in_flight_;
    ComputeOrder order_;
};

}  // namespace loratrain

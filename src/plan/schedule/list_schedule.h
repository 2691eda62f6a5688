#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/cost/cost_model.h"

namespace loratrain {

/// A forward or backward of one microbatch on one stage.
struct ComputeStep {
    bool backward = false;
    std::int32_t microbatch = 0;  ///< number in the stream
};

/// What every stage computes next, in order.
using ComputeOrder = std::vector<std::vector<ComputeStep>>;

/// What one pipeline has to compute, in microbatch order. Times in nanoseconds; 0 counts as 1.
struct PipelineLoad {
    std::int32_t stages = 1;
    std::int32_t max_in_flight = 1;  ///< at the first stage; stage s: one less each, at least 1
    bool forward_only = false;
    std::int32_t first = 0;              ///< number of the first microbatch that is in the lists
    std::vector<std::int64_t> forward;   ///< [(microbatch - first) * stages + stage]
    std::vector<std::int64_t> backward;  ///< likewise
    /// Per microbatch: backwards that the first stage must have finished before its forward.
    std::vector<std::int32_t> required;
};

/// Appends the times of one more microbatch on every stage; `required` is left to the caller.
void add_times(PipelineLoad& load, const CostModel& costs, std::span<const StagePlan> stages,
               Recompute recompute, const AdapterLoads& microbatch);

/// Microbatches below `number` leave.
void drop_below(PipelineLoad& load, std::int32_t number);

/// List scheduling: all stages are simulated; messages are free. A free stage starts what is ready;
/// the first stage prefers a forward, the others a backward (mLoRA section 3, priority rules).
/// Forwards and backwards each go in microbatch order. A forward waits while max_in_flight - stage
/// (at least 1) microbatches are in flight there; on the first stage also for its `required`
/// backwards. With `forward_only` there are neither backwards nor these limits.
class ListSchedule {
  public:
    /// Kept by reference; between calls microbatches may be added to it, and those that have ended
    /// may leave it.
    explicit ListSchedule(const PipelineLoad& load);

    /// From where the last call ended to the first stage's last known forward: what is added later
    /// cannot change it. With `to_the_end` to the last end of all; nothing may follow then, and
    /// Error when the load cannot finish. What starts is appended to `order`, if given.
    void advance(bool to_the_end, ComputeOrder* order);

    /// Microbatches below this number have begun their last computation: the next calls need
    /// nothing of them.
    std::int32_t ended() const;

    std::int64_t now() const { return now_; }
    std::int64_t busy() const;  ///< sum over stages
    /// Most microbatches in flight so far.
    std::int32_t peak_in_flight(std::size_t stage) const { return stages_[stage].peak; }

  private:
    struct Stage {
        std::int64_t busy_until = 0;
        std::int64_t busy = 0;
        std::int32_t forwarded = 0;
        std::int32_t backwarded = 0;
        std::int32_t limit = 1;
        std::int32_t peak = 0;
        bool woken = false;  ///< it or a neighbour has just ended something
    };

    std::size_t at(std::int32_t microbatch, std::size_t stage) const {
        return static_cast<std::size_t>(microbatch - load_.first) * stages_.size() + stage;
    }
    void follow_load();
    void start_ready(std::size_t s, ComputeOrder* order);
    void start(Stage& stage, std::int64_t time, std::int64_t& end) const;
    bool forward_ready(std::size_t s) const;
    bool backward_ready(std::size_t s) const;
    std::int64_t next_end();
    void check_finished() const;

    const PipelineLoad& load_;
    std::int32_t first_ = 0;  ///< load_.first that forward_end_ and backward_end_ begin with
    std::int32_t count_ = 0;  ///< microbatches so far
    std::int64_t now_ = 0;
    std::vector<Stage> stages_;
    std::vector<std::int64_t> forward_end_;
    std::vector<std::int64_t> backward_end_;
};

}  // namespace loratrain

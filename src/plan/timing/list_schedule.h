#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "plan/cost/cost_model.h"

namespace loratrain {

/// When each of several stages ends what it is at, and which are the next to: scans of a few stages
/// at a time, with the least time of each such block beside; a tree waits at every level.
class EndTimes {
  public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    explicit EndTimes(std::size_t stages)
        : least_((std::max<std::size_t>(stages, 1) + in_block - 1) / in_block, never),
          times_(least_.size() * in_block, never) {}

    void set(std::size_t stage, std::int64_t time) {
        std::int64_t& least = least_[stage / in_block];
        const std::int64_t before = std::exchange(times_[stage], time);
        if (time <= least) {
            least = time;
        } else if (before == least) {
            least = least_of(stage / in_block);
        }
    }

    /// never, where no stage is busy.
    std::int64_t first() const { return *std::min_element(least_.begin(), least_.end()); }

    /// Calls `end(stage)` for the stages that end at `time`, which is first(), in their order; it
    /// may set theirs.
    template <typename End>
    void each_at(std::int64_t time, End&& end) {
        for (std::size_t block = 0; block < least_.size(); ++block) {
            if (least_[block] != time) continue;
            std::uint32_t equal = 0;
            for (std::size_t j = 0; j < in_block; ++j) {
                equal |= static_cast<std::uint32_t>(times_[block * in_block + j] == time) << j;
            }
            for (; equal != 0; equal &= equal - 1) {
                end(block * in_block + static_cast<std::size_t>(std::countr_zero(equal)));
            }
        }
    }

  private:
    static constexpr std::size_t in_block = 8;

    std::int64_t least_of(std::size_t block) const {
        const auto first = times_.begin() + static_cast<std::ptrdiff_t>(block * in_block);
        return *std::min_element(first, first + static_cast<std::ptrdiff_t>(in_block));
    }

    std::vector<std::int64_t> least_;  ///< per block
    std::vector<std::int64_t> times_;  ///< in_block for each
};

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
    std::int32_t max_in_flight = 1;      ///< at the first stage; stage s: one less each, at least 1
    std::int32_t first = 0;              ///< number of the first microbatch that is in the lists
    std::vector<std::int64_t> forward;   ///< [(microbatch - first) * stages + stage]
    std::vector<std::int64_t> backward;  ///< likewise
    /// Per microbatch: backwards that the first stage must have finished before its forward.
    std::vector<std::int32_t> required;
    /// Per microbatch, whether it has a forward alone; empty = none has.
    std::vector<bool> evaluation = {};

    bool evaluates(std::int32_t microbatch) const {
        return !evaluation.empty() && evaluation[static_cast<std::size_t>(microbatch - first)];
    }
};

/// Appends the times of one more microbatch on every stage; PipelineLoad's `required` and
/// `evaluation` are left to the caller.
void add_times(PipelineLoad& load, const CostModel& costs, std::span<const StagePlan> stages,
               Recompute recompute, const AdapterLoads& microbatch, bool evaluation = false);

/// Microbatches below `number` leave.
void drop_below(PipelineLoad& load, std::int32_t number);

/// List scheduling: all stages are simulated; messages are free. A free stage starts what is ready;
/// the first stage prefers a forward, the others a backward (mLoRA section 3, priority rules).
/// Forwards and backwards each go in microbatch order. A forward waits while max_in_flight - stage
/// (at least 1) microbatches are in flight there; on the first stage also for its `required`
/// backwards. An evaluation counts as backwarded on a stage once its forward there, and all
/// backwards of microbatches before it, are over. An end wakes its stage
/// and that one's neighbours alone, as nothing else can have become ready.
class ListSchedule {
  public:
    /// Kept by reference; between calls microbatches may be added to it, and those that have ended
    /// may leave it.
    explicit ListSchedule(const PipelineLoad& load);

    /// From where the last call ended to the first stage's last known forward, and on to its first
    /// `least_backwards` backwards and until the last stage has ended `least_forwards` forwards:
    /// what is added later cannot change it. With `to_the_end` to the last end of all; nothing may
    /// follow then, and Error when the load cannot finish. What starts is appended to `order`, if
    /// given.
    void advance(bool to_the_end, ComputeOrder* order, std::int32_t least_backwards = 0,
                 std::int32_t least_forwards = 0);

    /// Microbatches below this number have begun their last computation: the next calls need
    /// nothing of them.
    std::int32_t ended() const;

    std::int64_t now() const { return now_; }
    std::int64_t busy() const;  ///< sum over stages
    /// Most microbatches in flight so far.
    std::int32_t peak_in_flight(std::size_t stage) const { return stages_[stage].peak; }

  private:
    enum class Task : std::uint8_t { none, forward, backward };
    struct Stage {
        Task running = Task::none;
        bool woken = false;  ///< is among woken_
        std::int32_t forwarded = 0;
        std::int32_t forwards_ended = 0;
        std::int32_t backwarded = 0;
        std::int32_t backwards_ended = 0;
        std::int32_t limit = 1;
        std::int32_t peak = 0;
        std::int64_t busy = 0;
    };
    std::size_t at(std::int32_t microbatch, std::size_t stage) const {
        return static_cast<std::size_t>(microbatch - load_.first) * stages_.size() + stage;
    }
    void follow();
    void wake(std::size_t s);
    void start_woken(ComputeOrder* order);
    void start_ready(std::size_t s, ComputeOrder* order);
    void start(std::size_t s, Task task, std::int64_t time);
    bool forward_ready(std::size_t s) const;
    bool backward_ready(std::size_t s) const;
    void pass_evaluations(Stage& stage) const;
    bool go_to_next_end();
    void end_task(std::size_t s);
    void check_finished() const;

    const PipelineLoad& load_;
    std::int32_t count_ = 0;  ///< microbatches so far
    std::int64_t now_ = 0;
    std::vector<Stage> stages_;
    EndTimes ends_;                   ///< of what stages are running
    std::vector<std::size_t> woken_;  ///< stages that may have something to start
};

}  // namespace loratrain

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

/// List scheduling: the order and times of a pipeline's computations.

/// End times of the tasks of stages, and the next ends. Stages are in blocks with the least time of
/// each block beside; scanning such a block is faster than walking a tree.
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

    /// The next end; `never` if no stage is busy.
    std::int64_t first() const { return *std::min_element(least_.begin(), least_.end()); }

    /// Calls end(stage) for all stages that end at `time`, in their order. `time` is first(); end()
    /// may set the stage's time.
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

/// Per stage: its next computations, in order.
using ComputeOrder = std::vector<std::vector<ComputeStep>>;

/// Load of a pipeline, in microbatch order. Times are nanoseconds; 0 counts as 1.
struct PipelineLoad {
    std::int32_t stages = 1;
    std::int32_t max_in_flight = 1;      ///< on stage 0; on stage s: max(1, max_in_flight - s)
    std::int32_t first = 0;              ///< number of the first microbatch in the lists
    std::vector<std::int64_t> forward;   ///< [(microbatch - first) * stages + stage]
    std::vector<std::int64_t> backward;  ///< likewise
    /// Per microbatch: number of backwards that stage 0 has to end before its forward.
    std::vector<std::int32_t> required;
    /// Per microbatch: true if it has no backward. Empty = all have one.
    std::vector<bool> evaluation = {};

    bool evaluates(std::int32_t microbatch) const {
        return !evaluation.empty() && evaluation[static_cast<std::size_t>(microbatch - first)];
    }
};

/// Whether any microbatch takes as long on either stage; nothing else of them matters to times.
bool compute_alike(const StagePlan& a, const StagePlan& b);

/// Appends the times of a microbatch on every stage. The caller appends to `required` and
/// `evaluation`.
void add_times(PipelineLoad& load, const CostModel& costs, std::span<const StagePlan> stages,
               Recompute recompute, const AdapterLoads& microbatch, bool evaluation = false);

/// Removes the microbatches below `number`.
void drop_below(PipelineLoad& load, std::int32_t number);

/// List scheduling: a simulation of all stages; messages take no time.
/// - A free stage starts what is ready. Stage 0 prefers a forward, the others a backward (mLoRA
///   section 3, priority rules). Forwards and backwards each go in microbatch order.
/// - A forward waits while max(1, max_in_flight - stage) microbatches are in flight on its
///   stage.
///   On stage 0 it also waits for its `required` backwards.
/// - An evaluation counts as backwarded on a stage once its forward there, and all backwards of
///   earlier microbatches, are over.
/// - The end of a task wakes its stage and the stage's neighbours; nothing else can become ready.
class ListSchedule {
  public:
    /// `load` outlives it. Between calls microbatches may be added, and ended ones removed.
    explicit ListSchedule(const PipelineLoad& load);

    /// Continues to stage 0's last known forward, and on until stage 0 has begun `least_backwards`
    /// backwards and the last stage has ended `least_forwards` forwards. Microbatches that are
    /// added later cannot change the result. With `to_the_end`: to the last end; nothing may
    /// follow, and Error if the load cannot finish. Computations that start are appended to `order`
    /// (may be null).
    void advance(bool to_the_end, ComputeOrder* order, std::int32_t least_backwards = 0,
                 std::int32_t least_forwards = 0);

    /// Microbatches below this number have begun their last computation; later calls do not need
    /// them.
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

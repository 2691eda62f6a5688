#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "plan/replica_view.h"
#include "plan/timing/list_schedule.h"

namespace loratrain {

/// Makes the action lists of stages, by list scheduling.

/// The order in which each stage computes a stream of windows, by list scheduling (list_schedule.h)
/// with the times of costs_of(). The first stage holds a microbatch back until the previous batch
/// of each of its adapters is over. Training results do not depend on the order.
class PipelineOrder {
  public:
    /// `view` refers to the plan, which outlives it.
    explicit PipelineOrder(const ReplicaView& view);
    PipelineOrder(const PipelineOrder&) = delete;
    PipelineOrder& operator=(const PipelineOrder&) = delete;

    /// Adds the batches and microbatches of the stream's next window. `over_after`: per batch, the
    /// number of backwards on the first stage after which it is over.
    void add(const Window& window, std::span<const std::int32_t> over_after);

    /// Everything that starts after the last call, up to the first stage's last known forward, its
    /// first `least_backwards` backwards and the last stage's first `least_forwards` forwards. With
    /// `to_the_end` everything.
    ComputeOrder advance(bool to_the_end, std::int32_t least_backwards = 0,
                         std::int32_t least_forwards = 0);

    /// Microbatches below this number have ended on all stages and are forgotten.
    std::int32_t ended() const { return load_.first; }
    /// Number of microbatches kept.
    std::size_t size() const { return load_.required.size(); }

    /// Most microbatches in flight so far, per stage.
    std::vector<std::int32_t> peak_in_flight() const;

  private:
    ReplicaView view_;
    std::map<AdapterId, std::int32_t> over_after_;  ///< backwards that end its last batch
    PipelineLoad load_;
    ListSchedule schedule_;
};

class StageActions;

/// Fills actions and peak_in_flight of a stream's windows from their batches and microbatches, with
/// slots, buffers and peers. Forgets microbatches that have ended on every stage.
///
/// Receives stand directly before their use, sends directly after what they send was produced.
/// Gradient norms travel without a bubble (design.md "Gradient norms ride on messages"):
/// - partial sums of (a, j) ride down with the messages of its last backward;
/// - the total rides up with the first microbatch of a's evaluation or of (a, j+1); every stage
///   steps (a, j) right before that forward, stages above the first right after its recv_forward;
/// - the total of an adapter's last batch without an evaluation after it rides up with the first
///   microbatch of any batch that cannot begin before the last backward has come back; for a batch
///   that is the last by order (end()), not before the next window;
/// - at the end of the stream all batches left are stepped on the first stage; then their totals go
///   up with one recv_norms / send_norms per boundary, and each stage passes them on before its own
///   steps.
///
/// A window's lists end when the first stage has begun its last forward, or later if the last stage
/// has to end some forwards. The next window continues there, so that nothing waits at a boundary.
///
/// With several replicas no message carries sums.
/// - Reduce: a stage reduces batches in the order of JointWindow::reductions, directly after the
///   batch's last backward there. A stage without samples of the batch reduces it as soon as the
///   adapter's former batch is stepped, so that nobody waits for it; at the latest with its next
///   batch of the round.
/// - Step: a stage steps a batch as late as possible, since the sum travels meanwhile: before the
///   first forward of the adapter's next batch or of its evaluation; at the latest before the
///   adapter's next batch, or a later one in the order, is reduced.
/// - So no batch of a window's last round is stepped in the window, except before an evaluation:
///   other replicas may be behind. All replicas reduce what an evaluation waits for in its window.
///
/// There is no deadlock if forward sends never wait (a slot keeps its output until the backward has
/// come back) and at least one gradient send may be in flight. With few send buffers in both
/// directions two neighbours could wait for each other.
class PipelineActions {
  public:
    explicit PipelineActions(const ReplicaView& view);

    /// Adds actions and peaks to the stream's next window, whose other members are filled.
    /// `reductions`: JointWindow::reductions. `least_forwards`: the last stage ends the forwards of
    /// so many microbatches of the stream in this window. `awaits`: an evaluation is awaited, so
    /// all replicas step what is evaluated, also those without a share of the evaluation.
    void add_to(Window& window, std::span<const std::int32_t> reductions,
                std::int32_t least_forwards = 0, bool awaits = false);

    /// The adapter's newest batch is its last, whatever its plan says.
    void end(AdapterId adapter);
    std::size_t size() const;  ///< number of entries kept

  private:
    using BatchList = std::vector<std::int32_t>;

    /// A batch that a stage has to reduce.
    struct Reduction {
        std::int32_t batch = 0;
        std::int32_t round = 0;
        std::int32_t after = 0;  ///< microbatches below this number have to be backwarded
        bool is_here = false;    ///< this replica has samples of it; if not, `after` does not count
        std::int64_t former = 0;     ///< reductions below this place are stepped first
        std::int32_t evaluated = 0;  ///< evaluations in microbatches below this one come first
    };
    /// A stage's progress in the order of reductions.
    struct StageSums {
        std::int32_t ended = 0;      ///< one past the last microbatch backwarded
        std::int32_t forwarded = 0;  ///< one past the last microbatch forwarded
        std::int64_t reduced = 0;
        std::int64_t stepped = 0;
    };
    /// A batch whose total no message carries yet.
    struct Newest {
        std::int32_t batch = -1;
        std::int32_t last_microbatch = -1;
        bool last_of_adapter = false;
    };

    void note_carried(const Window& window);
    void carry(AdapterId adapter, std::int32_t microbatch);
    void carry_totals_of_ended(const Window& window);
    void note_reductions(const Window& window, std::span<const std::int32_t> reductions);
    void note_needs(const Window& window);
    std::vector<std::int32_t> over_after(const Window& window) const;
    std::int64_t due_in(const Window& window) const;
    const Reduction& reduction(std::int64_t place) const {
        return reductions_[static_cast<std::size_t>(place - first_reduction_)];
    }
    std::int64_t noted_reductions() const { return first_reduction_ + std::ssize(reductions_); }
    void step_to(std::int64_t place, StageSums& sums, StageActions& stage) const;
    void reduce_what_it_can(StageSums& sums, StageActions& stage) const;
    void forget_ended();

    ReplicaView view_;
    bool joint_;  ///< one of several replicas
    PipelineOrder order_;
    std::deque<Reduction> reductions_;  ///< some stage has not stepped them
    std::int64_t first_reduction_ = 0;  ///< place of reductions_[0] in the stream
    std::int32_t over_after_ = 0;       ///< of the last reduction so far
    std::vector<StageSums> sums_;       ///< per stage
    /// Per microbatch: reductions below this place are stepped before its forward.
    std::map<std::int32_t, std::int64_t> needs_;
    std::map<AdapterId, std::int64_t> sum_of_newest_;  ///< one past the adapter's last reduction
    std::map<AdapterId, std::int32_t> evaluations_;    ///< one past the last microbatch of its own
    std::int64_t evaluated_ = 0;  ///< one past the last reduction that an evaluation follows
    std::vector<std::int32_t> backwarded_;    ///< per stage
    std::map<std::int32_t, BatchList> up_;    ///< per microbatch: totals with its forward
    std::map<std::int32_t, BatchList> down_;  ///< per microbatch: partial sums with its backward
    std::map<AdapterId, Newest> newest_;      ///< per adapter
};

}  // namespace loratrain

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

/// The order in which each stage computes a stream of windows: list scheduling (list_schedule.h)
/// with the times of costs_of(), where the first stage holds a microbatch back until the previous
/// batch of each of its adapters is over.
/// Results of the training do not depend on the order.
class PipelineOrder {
  public:
    /// `plan` is kept by reference.
    explicit PipelineOrder(const ReplicaView& view);
    PipelineOrder(const PipelineOrder&) = delete;
    PipelineOrder& operator=(const PipelineOrder&) = delete;

    /// More of the schedule: batches and microbatches of the stream's next window. `over_after`:
    /// per batch, backwards on the first stage that end it.
    void add(const Window& window, std::span<const std::int32_t> over_after);

    /// What starts from where the last call ended up to the first stage's last known forward, and
    /// to its first `least_backwards` backwards and the last one's first `least_forwards` forwards.
    /// With `to_the_end` everything.
    ComputeOrder advance(bool to_the_end, std::int32_t least_backwards = 0,
                         std::int32_t least_forwards = 0);

    /// Microbatches below this number have ended everywhere: nothing is kept of them.
    std::int32_t ended() const { return load_.first; }
    /// Microbatches kept.
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
/// all that the runtime needs: slots, buffers and peers. Keeps nothing of microbatches that have
/// ended on every stage.
///
/// Receives stand directly before their use, sends directly after what they send was produced.
/// Gradient norms travel without a bubble (design.md "Gradient norms ride on messages"):
/// - partial sums of (a, j) ride down with the messages of its last backward;
/// - the total rides up with the first microbatch of a's evaluation or of (a, j+1); every stage
///   steps (a, j) right before that forward, stages above the first right after its recv_forward;
/// - the total of an adapter's last batch, without an evaluation behind it, rides up with the first
///   microbatch of whatever batch that cannot begin before the last backward has come back, or
///   where it is the last by order (end()), the first of the next window if that is later;
/// - what is left where the stream drains is stepped on the first stage, then goes up with one
///   recv_norms / send_norms per boundary, each stage passing it on before its own steps.
///
/// A window's lists end where the first stage has begun its last forward, or later where the last
/// stage is to have ended some; the next window goes on there, so that nothing waits at a boundary.
///
/// One of several replicas sends no sums. Its stages begin to reduce a batch, in the order of
/// JointWindow::reductions, directly behind its last backward there; one that has no samples of it
/// as soon as the adapter's former batch is stepped, so that nobody waits for what it adds nothing
/// to, at the latest with the next of the round that it has. They step it as late as they can, for
/// the sum is under way meanwhile: before the first forward of the adapter's next batch or of its
/// evaluation, at the latest before its next batch, or one behind it in the order, is reduced. So
/// nothing of a window's last round is stepped in it but before an evaluation, as other replicas
/// may be behind; what an evaluation waits for is reduced in its window on all of them.
///
/// Free of deadlock as long as forward sends never wait (a slot keeps its output until the backward
/// has come back) and at least one gradient send may be under way; with few send buffers in both
/// directions two neighbours can wait for each other.
class PipelineActions {
  public:
    explicit PipelineActions(const ReplicaView& view);

    /// `window`: the stream's next one; everything but actions and peaks is filled. `reductions`:
    /// JointWindow's. `least_forwards`: microbatches of the stream whose forwards the last stage
    /// ends in it. `awaits`: an evaluation is awaited; of several replicas all step what is
    /// evaluated in it, also those that have no share of the evaluation.
    void add_to(Window& window, std::span<const std::int32_t> reductions,
                std::int32_t least_forwards = 0, bool awaits = false);

    /// The adapter's newest batch is its last, whatever its plan says.
    void end(AdapterId adapter);

    std::size_t size() const;  ///< entries kept, those of adapters and of the order included

  private:
    using BatchList = std::vector<std::int32_t>;

    /// A batch to be reduced, once microbatches below `after` are backwarded on a stage, where it
    /// is not here already once what stands before `former` is stepped; behind the adapter's
    /// evaluations before it, in microbatches below `evaluated`.
    struct Reduction {
        std::int32_t batch = 0;
        std::int32_t round = 0;
        std::int32_t after = 0;
        bool is_here = false;
        std::int64_t former = 0;  ///< place in the stream behind the adapter's batch before
        std::int32_t evaluated = 0;
    };
    /// How far a stage is in the order of reductions.
    struct StageSums {
        std::int32_t ended = 0;      ///< behind the last microbatch backwarded
        std::int32_t forwarded = 0;  ///< and forwarded
        std::int64_t reduced = 0;
        std::int64_t stepped = 0;
    };
    /// A batch whose total nothing carries yet.
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
    std::deque<Reduction> reductions_;  ///< not stepped on all stages yet
    std::int64_t first_reduction_ = 0;  ///< place in the stream of the first of them
    std::int32_t over_after_ = 0;       ///< of the last one so far
    std::vector<StageSums> sums_;       ///< per stage
    /// Per microbatch: reductions of the stream that are stepped before its forward.
    std::map<std::int32_t, std::int64_t> needs_;
    std::map<AdapterId, std::int64_t> sum_of_newest_;  ///< place behind each adapter's last one
    std::map<AdapterId, std::int32_t> evaluations_;  ///< behind the last microbatch of each's here
    std::int64_t evaluated_ = 0;  ///< place behind the last one that an evaluation follows
    std::vector<std::int32_t> backwarded_;    ///< per stage
    std::map<std::int32_t, BatchList> up_;    ///< per microbatch: totals with its forward
    std::map<std::int32_t, BatchList> down_;  ///< per microbatch: partial sums with its backward
    std::map<AdapterId, Newest> newest_;      ///< of each adapter
};

}  // namespace loratrain

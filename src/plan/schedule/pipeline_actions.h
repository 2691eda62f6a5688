#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "plan/replica_view.h"
#include "plan/schedule/compute_order.h"

namespace loratrain {

/// Fills actions and peak_in_flight of a stream's windows from their batches and microbatches, with
/// all that the runtime needs: slots, buffers and peers. Keeps nothing of microbatches that have
/// ended on every stage.
///
/// Receives stand directly before their use, sends directly after what they send was produced.
/// Gradient norms travel without a bubble (design decision 3):
/// - partial sums of (a, j) ride down with the messages of its last backward;
/// - the total rides up with the first microbatch of a's evaluation or of (a, j+1); every stage
///   steps (a, j) right before that forward, stages above the first right after its recv_forward;
/// - the total of an adapter's last batch, without an evaluation behind it, rides up with the first
///   microbatch of whatever batch that cannot begin before the last backward has come back;
/// - what is left where the stream drains is stepped on the first stage, then goes up with one
///   recv_norms / send_norms per boundary, each stage passing it on before its own steps.
///
/// A window's lists end where the first stage has begun its last forward; the next window goes on
/// there, so that nothing waits at a boundary.
///
/// One of several replicas sends no sums. Its stages reduce a round's batches, in the order of
/// JointWindow::reductions, directly behind the last backward of the round, and step each at once;
/// an adapter's next batch begins only then. Replicas work on different adapters of a round, so
/// that reducing one earlier would make them wait for each other. The last round of a window is
/// reduced in the next one, as other replicas may be behind.
///
/// Free of deadlock as long as forward sends never wait (a slot keeps its output until the backward
/// has come back) and at least one gradient send may be under way; with few send buffers in both
/// directions two neighbours can wait for each other.
class PipelineActions {
  public:
    explicit PipelineActions(const ReplicaView& view);

    /// `window`: the stream's next one; everything but actions and peaks is filled. `reductions`:
    /// JointWindow's.
    void add_to(Window& window, std::span<const std::int32_t> reductions);

    std::size_t size() const;  ///< entries kept, those of adapters and of the order included

  private:
    using BatchList = std::vector<std::int32_t>;

    /// A batch to be reduced, once so many backwards are done on a stage.
    struct Reduction {
        std::int32_t batch = 0;
        std::int32_t round = 0;
        std::int32_t after = 0;
    };
    /// A batch whose total nothing carries yet.
    struct Newest {
        std::int32_t batch = -1;
        std::int32_t last_microbatch = -1;
        bool last_of_adapter = false;
    };

    void note_carried(const Window& window);
    void carry(AdapterId adapter, std::int32_t microbatch);
    void carry_totals_of_ended(std::int32_t microbatches);
    void note_reductions(const Window& window, std::span<const std::int32_t> reductions);
    std::vector<std::int32_t> over_after(const Window& window) const;
    std::vector<Reduction> take_due(const Window& window);

    ReplicaView view_;
    bool joint_;  ///< one of several replicas
    PipelineOrder order_;
    std::vector<Reduction> reductions_;       ///< those that are not in lists yet
    std::int32_t over_after_ = 0;             ///< of the last one so far
    std::vector<std::int32_t> backwarded_;    ///< per stage
    std::map<std::int32_t, BatchList> up_;    ///< per microbatch: totals with its forward
    std::map<std::int32_t, BatchList> down_;  ///< per microbatch: partial sums with its backward
    std::map<AdapterId, Newest> newest_;      ///< of each adapter
};

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <map>
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
/// - the total rides up with the first microbatch of (a, j+1); every stage steps (a, j) right
///   before that forward, stages above the first right after its recv_forward;
/// - what is left where the stream drains is stepped on the first stage, then goes up with one
///   recv_norms / send_norms per boundary, each stage passing it on before its own steps.
///
/// A window's lists end where the first stage has begun its last forward; the next window goes on
/// there, so that nothing waits at a boundary.
///
/// Free of deadlock as long as forward sends never wait (a slot keeps its output until the backward
/// has come back) and at least one gradient send may be under way; with few send buffers in both
/// directions two neighbours can wait for each other.
class PipelineActions {
  public:
    PipelineActions(const ReplicaView& view, bool evaluation);

    /// `window`: the stream's next one; everything but actions and peaks is filled.
    void add_to(Window& window);

    std::size_t size() const;  ///< entries kept, those of adapters and of the order included

  private:
    using BatchList = std::vector<std::int32_t>;

    void note_carried(const Window& window);

    ReplicaView view_;
    bool evaluation_;
    PipelineOrder order_;
    std::map<std::int32_t, BatchList> up_;      ///< per microbatch: totals with its forward
    std::map<std::int32_t, BatchList> down_;    ///< per microbatch: partial sums with its backward
    std::map<AdapterId, std::int32_t> newest_;  ///< batch of each adapter that no other followed
};

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace loratrain

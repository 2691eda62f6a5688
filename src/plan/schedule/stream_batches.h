#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "plan/plan.h"
#include "plan/schedule/check_contents.h"

namespace loratrain {

/// A batch on one stage.
struct BatchProgress {
    std::int32_t passes_left = 0;   ///< backwards, of an evaluation forwards
    bool partial_received = false;  ///< sums of the stages after
    bool total_received = false;    ///< from the stage before
    bool reduced = false;           ///< summed over the replicas
    bool stepped = false;           ///< an evaluation: has had all its forwards
    bool left = false;  ///< stepped before the newest window: nothing may name it any more
};

/// A batch that not all stages have left behind.
struct BatchState {
    AdapterId adapter{};
    bool evaluation = false;
    MicrobatchId last_microbatch{};
    std::int32_t predecessor = -1;  ///< of the same adapter, evaluations included, or -1
    std::vector<BatchProgress> stages;
};

/// How far the batches of a stream are on each stage, by the stream's numbers; for the checker
/// (check_window.h). What all stages are done with leaves as the next window comes.
class StreamBatches {
  public:
    explicit StreamBatches(std::size_t stages) : stages_(stages) {}

    /// The next window; microbatches below `backwarded` have been backwarded on all stages.
    void append(const Window& window, const SegmentBatches& batch_of, std::int32_t backwarded);

    /// Null when the stage has left the batch behind.
    BatchProgress* progress(std::size_t stage, std::int32_t batch);
    const BatchProgress* progress(std::size_t stage, std::int32_t batch) const;

    bool is_stepped(std::size_t stage, std::int32_t batch) const;
    /// The batch's squared gradients of this stage and those above are there.
    bool sum_complete(std::size_t stage, std::int32_t batch) const;
    /// Its total over all stages is: the first stage adds its own sums to what came down, the
    /// others are reported.
    bool total_known(std::size_t stage, std::int32_t batch) const;

    /// Null when all stages have left it behind.
    const BatchState* find(std::int32_t batch) const;
    const std::map<std::int32_t, BatchState>& held() const { return batches_; }

    /// Batches of a microbatch that is under way.
    const std::vector<std::int32_t>& batches_in(MicrobatchId id) const;
    /// Whether a microbatch that is under way is one of evaluations.
    bool evaluates(MicrobatchId id) const;
    /// Microbatches so far.
    std::int32_t microbatches() const { return microbatches_.end(); }

    std::size_t size() const { return batches_.size() + microbatches_.size() + newest_.size(); }

  private:
    struct OfMicrobatch {
        std::vector<std::int32_t> batches;
        bool evaluation = false;
    };

    void leave(std::int32_t backwarded);

    std::size_t stages_;
    std::int32_t next_ = 0;
    std::map<std::int32_t, BatchState> batches_;
    Numbered<OfMicrobatch> microbatches_;
    std::map<AdapterId, std::int32_t> newest_;  ///< its last batch so far
};

}  // namespace loratrain

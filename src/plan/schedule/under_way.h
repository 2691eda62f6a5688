#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "base/ids.h"
#include "plan/plan.h"

namespace loratrain {

/// What one stage still has to do with of a stream, by the stream's numbers. What the stage is done
/// with leaves as the next window comes, so a stream that never drains takes no more and more room;
/// the checker proves that no later action names it (check_window.h).
class UnderWay {
  public:
    /// The stream's next window; Error when it does not continue the one before.
    void append(const Window& window);
    /// The stage has performed it: a batch is done with its step, a microbatch with its backward,
    /// an evaluation with its last forward, and its microbatches with a backward behind them.
    void performed(const Action& action);

    const BatchPlan& batch(std::int32_t number) const;
    /// The step of an adapter's newest batch, if the stage has still to take it.
    std::optional<std::int32_t> step_to_take(AdapterId adapter) const;
    /// Number of the batch that a segment of the microbatch belongs to.
    std::int32_t batch_of(const Microbatch& microbatch, const Segment& segment) const;
    const Microbatch& microbatch(MicrobatchId id) const { return microbatches_[number(id)]; }

    /// Batches and microbatches held.
    std::size_t size() const { return batches_.size() + microbatches_.size(); }

  private:
    struct Batch {
        BatchPlan plan;
        bool over = false;
    };

    using Key = std::tuple<AdapterId, std::int32_t, bool>;  ///< adapter, step, evaluation

    void leave();

    std::int32_t next_batch_ = 0;
    std::int32_t backwarded_ = 0;
    std::map<std::int32_t, Batch> batches_;
    std::map<Key, std::int32_t> number_of_;
    Numbered<Microbatch> microbatches_;
};

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "base/ids.h"
#include "plan/plan.h"

namespace loratrain {

/// Batches and microbatches of a stream that one stage still needs, by the stream's numbers. Others
/// are removed when the next window comes, so memory does not grow with the stream; the checker
/// proves that no later action names them (check_window.h).
class UnderWay {
  public:
    /// Adds the stream's next window. Error if it does not continue the one before.
    void append(const Window& window);
    /// The stage has performed the action. A batch is over with its step, a microbatch with its
    /// backward; an evaluation with its last forward, and its microbatches with a later backward.
    void performed(const Action& action);

    const BatchPlan& batch(std::int32_t number) const;
    /// Step of the adapter's newest batch, if the stage has not taken it.
    std::optional<std::int32_t> step_to_take(AdapterId adapter) const;
    /// Number of the batch that a segment of the microbatch belongs to.
    std::int32_t batch_of(const Microbatch& microbatch, const Segment& segment) const;
    const Microbatch& microbatch(MicrobatchId id) const { return microbatches_[number(id)]; }

    /// Number of batches and microbatches held.
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

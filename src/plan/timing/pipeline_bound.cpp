#include "plan/timing/pipeline_bound.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

using Times = std::vector<std::int64_t>;

/// From the last microbatch to the first.
class Backwards {
  public:
    explicit Backwards(const PipelineLoad& load)
        : load_(load),
          stages_(static_cast<std::size_t>(load.stages)),
          count_(load.required.size()),
          forward_(count_ * stages_),
          next_backward_(stages_),
          left_(stages_),
          released_(count_ + 1),
          down_(stages_) {
        for (std::size_t s = 1; s < stages_ && count_ > 0; ++s) {
            down_[s] = down_[s - 1] + time(load.backward, count_ - 1, s - 1);
        }
    }

    PipelineBound run() {
        PipelineBound bound;
        bound.from.resize(count_);
        for (std::size_t m = count_; m-- > 0;) {
            const std::int64_t work = add_work(m);
            add_backwards(m);
            add_forwards(m);
            bound.from[m] = std::max(work, forward_[m * stages_]);
            if (m + 1 < count_) {
                bound.from[m] =
                    std::max(bound.from[m], time(load_.forward, m, 0) + bound.from[m + 1]);
            }
            const auto required = static_cast<std::size_t>(std::max(0, load_.required[m]));
            LORATRAIN_CHECK(required <= m, "microbatch ", m, " requires ", required, " backwards");
            released_[required] = std::max(released_[required], bound.from[m]);
        }
        return bound;
    }

  private:
    std::int64_t time(const Times& times, std::size_t m, std::size_t s) const {
        return std::max<std::int64_t>(times[m * stages_ + s], 1);
    }

    std::int64_t add_work(std::size_t m) {
        std::int64_t most = 0;
        std::int64_t up = 0;
        for (std::size_t s = 0; s < stages_; ++s) {
            const std::int64_t forward = time(load_.forward, m, s);
            left_[s] += forward + time(load_.backward, m, s);
            most = std::max(most, up + left_[s] + down_[s]);
            up += forward;
        }
        return most;
    }

    /// From the start of each backward of m to the end of all.
    void add_backwards(std::size_t m) {
        std::int64_t after = released_[m + 1];
        for (std::size_t s = 0; s < stages_; ++s) {
            const std::int32_t limit = load_.max_in_flight - static_cast<std::int32_t>(s);
            const std::size_t held = m + static_cast<std::size_t>(std::max(1, limit));
            after = std::max(after, next_backward_[s]) + time(load_.backward, m, s);
            if (held < count_) after = std::max(after, forward_[held * stages_ + s]);
            next_backward_[s] = after;
        }
    }

    void add_forwards(std::size_t m) {
        std::int64_t after = next_backward_.back();
        for (std::size_t s = stages_; s-- > 0;) {
            if (m + 1 < count_) after = std::max(after, forward_[(m + 1) * stages_ + s]);
            after += time(load_.forward, m, s);
            forward_[m * stages_ + s] = after;
        }
    }

    const PipelineLoad& load_;
    std::size_t stages_;
    std::size_t count_;
    Times forward_;        ///< [microbatch][stage]: from the start of a forward to the end of all
    Times next_backward_;  ///< per stage: from the start of the backward after to the end of all
    Times left_;           ///< per stage: work of the microbatch and those after
    Times released_;       ///< per number of backwards: from the first forward that requires them
    Times down_;           ///< per stage: what the last gradient takes from there to the first
};

}  // namespace

PipelineBound pipeline_bound(const PipelineLoad& load) {
    LORATRAIN_CHECK(load.evaluation.empty() && load.first == 0, "the bound is of whole loads");
    return Backwards(load).run();
}

}  // namespace loratrain

#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "base/ids.h"

namespace loratrain {

/// Decides whether it pays to move an adapter to another worker. The old worker has to drain its
/// pipeline and to write a checkpoint. The cost is the longest move so far; before the first one,
/// the longest checkpoint of a worker. Times are seconds of one clock.
class MoveCosts {
  public:
    /// Largest share of the remaining work that a move may take.
    static constexpr double most_of_work = 0.5;
    /// Seconds of work below which nothing is moved.
    static constexpr double least_work = 5.0;

    void ordered(AdapterId adapter, double now) { ordered_[adapter] = now; }
    /// The dispatcher has the adapter again.
    void returned(AdapterId adapter, double now) {
        const auto found = ordered_.find(adapter);
        if (found == ordered_.end()) return;
        longest_ = std::max(longest_.value_or(0.0), now - found->second);
        ordered_.erase(found);
    }
    /// The adapter has ended before it moved.
    void ended(AdapterId adapter) { ordered_.erase(adapter); }
    /// A worker's checkpoint took so long.
    void saved(double seconds) { checkpoint_ = std::max(checkpoint_, seconds); }

    double seconds() const { return longest_.value_or(checkpoint_); }
    /// True if a move pays. `work_left`: seconds that the old worker would still train.
    bool is_worth(double work_left) const {
        return work_left >= std::max(least_work, seconds() / most_of_work);
    }

  private:
    std::map<AdapterId, double> ordered_;
    std::optional<double> longest_;
    double checkpoint_ = 0.0;
};

}  // namespace loratrain

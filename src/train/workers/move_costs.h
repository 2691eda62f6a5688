#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "base/ids.h"

namespace loratrain {

/// Whether it pays that an adapter goes on with another worker: its old one has to empty its
/// pipeline and to write a checkpoint, and the disk decides how long that takes. Learns what moves
/// take in this run; until one is over, a move is taken to be as long as the longest checkpoint of
/// a worker so far. Times are seconds of one clock.
class MoveCosts {
  public:
    /// So much of what is left of the work must be training, when a move takes as long as it did.
    static constexpr double most_of_work = 0.5;
    /// Less work than this is never moved.
    static constexpr double least_work = 5.0;

    void ordered(AdapterId adapter, double now) { ordered_[adapter] = now; }
    /// The dispatcher has it again.
    void returned(AdapterId adapter, double now) {
        const auto found = ordered_.find(adapter);
        if (found == ordered_.end()) return;
        longest_ = std::max(longest_.value_or(0.0), now - found->second);
        ordered_.erase(found);
    }
    /// It has ended before.
    void ended(AdapterId adapter) { ordered_.erase(adapter); }
    /// A worker's checkpoint.
    void saved(double seconds) { checkpoint_ = std::max(checkpoint_, seconds); }

    double seconds() const { return longest_.value_or(checkpoint_); }
    /// `work_left`: seconds that the worker which gives adapters away would train on.
    bool is_worth(double work_left) const {
        return work_left >= std::max(least_work, seconds() / most_of_work);
    }

  private:
    std::map<AdapterId, double> ordered_;
    std::optional<double> longest_;
    double checkpoint_ = 0.0;
};

}  // namespace loratrain

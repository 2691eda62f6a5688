#pragma once

#include <cmath>

namespace loratrain {

/// Mean of something over the time in which it was seen, of which what was `memory` seconds ago
/// counts 1/e of what is now. Until the memory is full, it is near the plain mean.
class RecentMean {
  public:
    explicit RecentMean(double memory = 30.0) : memory_(memory) {}

    /// It has been `value` for the last `seconds`, above 0.
    void add(double value, double seconds) {
        const double kept = std::exp(-seconds / memory_);
        weight_ = kept * weight_ + (1.0 - kept);
        mean_ += (1.0 - kept) / weight_ * (value - mean_);
    }
    double value() const { return mean_; }  ///< 0 before the first

  private:
    double memory_;
    double mean_ = 0.0;
    double weight_ = 0.0;  ///< of all that was seen; comes to 1
};

}  // namespace loratrain

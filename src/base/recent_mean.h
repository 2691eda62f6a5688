#pragma once

#include <cmath>

namespace loratrain {

/// Mean of something over time, of which what was `memory` seconds ago counts 1/e of what is now.
class RecentMean {
  public:
    explicit RecentMean(double memory = 30.0) : memory_(memory) {}

    /// It has been `value` for the last `seconds`.
    void add(double value, double seconds) {
        const double weight = known_ ? 1.0 - std::exp(-seconds / memory_) : 1.0;
        mean_ += weight * (value - mean_);
        known_ = true;
    }
    double value() const { return mean_; }  ///< 0 before the first

  private:
    double memory_;
    double mean_ = 0.0;
    bool known_ = false;
};

}  // namespace loratrain

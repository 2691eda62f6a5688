#pragma once

#include <chrono>

#include "base/system.h"

namespace loratrain {

/// Seconds that a run has trained, over all its starts.
class RunClock {
  public:
    /// `before`: those of the starts before this one.
    void continue_from(double before) { before_ = before; }
    double before() const { return before_; }
    double elapsed() const { return before_ + seconds_since(started_); }

  private:
    double before_ = 0.0;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace loratrain

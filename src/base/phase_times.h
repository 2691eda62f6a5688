#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// How long the parts of something take that come one after the other, from its construction on.
class PhaseTimes {
  public:
    /// What has passed since the phase before ended. One of the same name is added to it.
    void end(const std::string& phase);
    void add(const std::string& phase, double seconds);

    /// "12.3 s: costs 6.2, weights 5.0": the sum of all, and those that take a tenth of a second.
    std::string text() const;

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    std::vector<std::pair<std::string, double>> phases_;
};

}  // namespace loratrain

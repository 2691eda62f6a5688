#pragma once

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace loratrain {

/// Means that follow a changing value.

/// Plain mean of the last 10 values: steadier than the last value alone.
class LastMean {
  public:
    static constexpr std::size_t most = 10;

    void add(double value) {
        if (values_.size() == most) values_.erase(values_.begin());
        values_.push_back(value);
    }
    bool empty() const { return values_.empty(); }
    /// 0 without values.
    double value() const {
        if (empty()) return 0.0;
        return std::accumulate(values_.begin(), values_.end(), 0.0) /
               static_cast<double>(values_.size());
    }
    const std::vector<double>& values() const { return values_; }  ///< oldest first

  private:
    std::vector<double> values_;
};

/// Mean over time with exponential forgetting: a value `memory` seconds ago has 1/e of the present
/// value's weight. Before `memory` seconds have passed, it is close to the plain mean.
class RecentMean {
  public:
    explicit RecentMean(double memory = 30.0) : memory_(memory) {}

    /// The quantity has been `value` for the last `seconds` (> 0).
    void add(double value, double seconds) {
        const double kept = std::exp(-seconds / memory_);
        weight_ = kept * weight_ + (1.0 - kept);
        mean_ += (1.0 - kept) / weight_ * (value - mean_);
    }
    double value() const { return mean_; }  ///< 0 before the first value

  private:
    double memory_;
    double mean_ = 0.0;
    double weight_ = 0.0;  ///< of all values so far; tends to 1
};

}  // namespace loratrain

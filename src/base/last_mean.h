#pragma once

#include <numeric>
#include <vector>

namespace loratrain {

/// Mean of the last few values: steadier than the last one, and soon rid of what is long past.
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

}  // namespace loratrain

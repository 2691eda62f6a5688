#pragma once

#include <string>
#include <vector>

namespace loratrain {

struct Tick {
    double value = 0.0;
    std::string label;  ///< "" = a mark without a number
};

/// One axis of a chart: a range of values, linear or logarithmic, mapped to 0 .. 1.
class ChartAxis {
  public:
    /// Covers the finite numbers in `values`; 0 to 1 if there are none. A logarithmic axis (if
    /// asked for and all values are above 0) is rounded outwards in 1-2-5 steps. A linear axis is
    /// rounded outwards to ticks, and includes 0 if 0 is near or `from_zero` is set.
    ChartAxis(const std::vector<double>& values, bool logarithmic, bool from_zero = false);

    /// Ratio of the largest to the smallest value from which a logarithmic axis shows more.
    static constexpr double logarithmic_ratio = 20.0;
    /// True if all finite values are above 0 and span at least logarithmic_ratio.
    static bool wants_logarithm(const std::vector<double>& values);

    bool logarithmic() const { return logarithmic_; }
    double low() const { return low_; }
    double high() const { return high_; }
    double position(double value) const;
    /// Ends the axis at the outermost values instead of at ticks.
    void fit_tightly(const std::vector<double>& values);
    /// The ticks, of which about six have numbers.
    std::vector<Tick> ticks() const;

  private:
    std::vector<Tick> linear_ticks() const;
    std::vector<Tick> logarithmic_ticks() const;

    bool logarithmic_ = false;
    double low_ = 0.0;
    double high_ = 1.0;
    double step_ = 0.2;
};

/// Short text of a value: "0", "0.25", "1200"; from 10 000 on "15k" or "2.5M"; below 0.001
/// "2.5e-4".
std::string tick_label(double value);

}  // namespace loratrain

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
    /// Covers the finite ones of `values`. Logarithmic (only when asked for and all are above 0):
    /// the range as it is, rounded outwards in 1-2-5 steps. Linear: rounded outwards to ticks; 0 is
    /// included when it is near or `from_zero`. No values: 0 to 1.
    ChartAxis(const std::vector<double>& values, bool logarithmic, bool from_zero = false);

    /// Largest over smallest, from which on a logarithmic axis shows more than a linear one.
    static constexpr double logarithmic_ratio = 20.0;
    /// True when all finite values are above 0 and span at least that.
    static bool wants_logarithm(const std::vector<double>& values);

    bool logarithmic() const { return logarithmic_; }
    double low() const { return low_; }
    double high() const { return high_; }
    double position(double value) const;
    /// Ends where the values end, with the ticks inside.
    void fit_tightly(const std::vector<double>& values);
    /// About six numbered ones.
    std::vector<Tick> ticks() const;

  private:
    std::vector<Tick> linear_ticks() const;
    std::vector<Tick> logarithmic_ticks() const;

    bool logarithmic_ = false;
    double low_ = 0.0;
    double high_ = 1.0;
    double step_ = 0.2;
};

/// Short: "0", "0.25", "1200", from 10 000 on "15k" or "2.5M", below 0.001 "2.5e-4".
std::string tick_label(double value);

}  // namespace loratrain

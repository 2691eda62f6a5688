#include "plan/rank_trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace loratrain {

double compared(double value) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
    if (value == 0.0) return 0.0;
    constexpr int digits = 6;
    const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
    const double unit = std::pow(10.0, exponent - digits + 1);
    return std::round(value / unit) * unit;
}

std::vector<TrialStanding> rank_trials(std::vector<TrialStanding> trials) {
    const auto order = [](const TrialStanding& trial) {
        const int rungs = trial.stage == TrialStage::partial ? trial.rungs : 0;
        return std::tuple(trial.stage, -rungs, compared(trial.value), trial.trial);
    };
    std::sort(trials.begin(), trials.end(),
              [&](const auto& a, const auto& b) { return order(a) < order(b); });
    return trials;
}

}  // namespace loratrain

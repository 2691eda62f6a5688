#include "plan/rank_trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

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
    using Order = std::tuple<TrialStage, int, double, AdapterId>;
    std::vector<std::pair<Order, TrialStanding>> ordered;
    for (const TrialStanding& trial : trials) {
        const int rungs = trial.stage == TrialStage::partial ? trial.rungs : 0;
        ordered.push_back({{trial.stage, -rungs, compared(trial.value), trial.trial}, trial});
    }
    std::sort(ordered.begin(), ordered.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(ordered.begin(), ordered.end(), trials.begin(),
                   [](const auto& entry) { return entry.second; });
    return trials;
}

}  // namespace loratrain

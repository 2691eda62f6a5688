#include "plan/rungs.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace loratrain {

namespace {

constexpr std::size_t least_for_median = 3;

/// A trial that is at a rung, or past it.
struct Arrival {
    double value = 0.0;
    std::size_t trial = 0;
};

/// Best first: those let past the rung before, whatever came since; those pruned there last.
std::vector<Arrival> arrivals_at(int rung, std::span<const TrialRecord> trials,
                                 const std::vector<std::size_t>& candidates) {
    const auto place = static_cast<std::size_t>(rung);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<Arrival> arrivals;
    for (const std::size_t t : candidates) {
        const TrialRecord& trial = trials[t];
        const bool here = trial.values.size() > place;
        if (!here && !trial.gone) continue;
        double value = here ? compared(trial.values[place]) : infinity;
        if (trial.promoted > rung) value = -infinity;
        if (trial.pruned && trial.promoted == rung) value = infinity;
        arrivals.push_back({value, t});
    }
    std::stable_sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
        return std::pair(a.value, a.trial) < std::pair(b.value, b.trial);
    });
    return arrivals;
}

}  // namespace

std::int32_t rung_step(const SweepJob& sweep, std::int32_t total_steps, int rung,
                       std::int32_t warmup) {
    double steps = total_steps;
    for (int k = rung + 1; k < sweep.rungs; ++k) steps /= sweep.reduction_factor;
    constexpr double rounding = 1e-9;  // thirds of multiples of three are whole
    const auto whole = static_cast<std::int32_t>(std::ceil(steps - rounding));
    return std::min(std::max(whole, warmup + 1), total_steps);
}

std::vector<RungDecision> judge_halving(const SweepJob& sweep,
                                        std::span<const TrialRecord> trials) {
    std::vector<RungDecision> decisions(trials.size(), RungDecision::wait);
    std::vector<std::size_t> candidates;
    for (std::size_t t = 0; t < trials.size(); ++t) candidates.push_back(t);
    std::size_t expected = trials.size();
    for (int rung = 0; rung + 1 < sweep.rungs; ++rung) {
        const auto eta = static_cast<std::size_t>(sweep.reduction_factor);
        const std::size_t places = std::max<std::size_t>(1, expected / eta);
        const std::vector<Arrival> arrivals = arrivals_at(rung, trials, candidates);
        const std::size_t outstanding = expected - std::min(expected, arrivals.size());
        candidates.clear();
        for (std::size_t better = 0; better < arrivals.size(); ++better) {
            const std::size_t t = arrivals[better].trial;
            const bool passed = trials[t].promoted > rung;
            const bool here = trials[t].promoted == rung;  // else one rung at a time
            if (passed || better + outstanding < places) {
                candidates.push_back(t);
                if (here) decisions[t] = RungDecision::promote;
            } else if (better >= places && here) {
                decisions[t] = RungDecision::prune;
            }
        }
        std::sort(candidates.begin(), candidates.end());
        expected = places;
    }
    return decisions;
}

RungDecision judge_at_once(const SweepJob& sweep, std::span<const double> others, double value) {
    const double own = compared(value);
    std::vector<double> values;
    for (const double other : others) values.push_back(compared(other));
    std::sort(values.begin(), values.end());
    const auto better = static_cast<std::size_t>(
        std::lower_bound(values.begin(), values.end(), own) - values.begin());
    if (sweep.scheduler == TrialScheduler::asha) {
        const auto eta = static_cast<std::size_t>(sweep.reduction_factor);
        const std::size_t places = std::max<std::size_t>(1, (values.size() + 1) / eta);
        return better < places || values.empty() ? RungDecision::promote : RungDecision::prune;
    }
    if (sweep.scheduler != TrialScheduler::median || values.size() < least_for_median) {
        return RungDecision::promote;
    }
    return own <= values[(values.size() - 1) / 2] ? RungDecision::promote : RungDecision::prune;
}

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

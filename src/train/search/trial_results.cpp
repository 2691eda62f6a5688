#include "train/search/trial_results.h"

#include <cmath>

#include "train/search/trial_search.h"

namespace loratrain {

namespace {

TrialResult result_of(const SweepJob& sweep, const AdapterState& state, std::size_t rank) {
    TrialResult result;
    result.rank = rank;
    const bool exact = sweep.objective == SweepObjective::exact_match;
    const double objective = objective_of(sweep, state);
    if (std::isfinite(objective)) result.objective = exact ? -objective : objective;
    result.rung = static_cast<int>(state.rungs.size());
    if (state.status == AdapterStatus::done) ++result.rung;
    result.reason = state.reason;
    return result;
}

}  // namespace

std::vector<TrialEntry> trial_results(const Job& job, const AdapterTable& adapters) {
    std::vector<TrialEntry> entries;
    for (std::size_t d = 0; d < job.datasets.size(); ++d) {
        std::size_t rank = 0;
        for (const TrialStanding& trial : standings(job, adapters, static_cast<DatasetId>(d))) {
            entries.push_back(
                {trial.trial, result_of(*job.sweep, adapters[trial.trial].state, ++rank)});
        }
    }
    return entries;
}

}  // namespace loratrain

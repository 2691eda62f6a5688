#include "train/search/trial_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace loratrain {

namespace {

TrialStage stage_of_trial(AdapterStatus status) {
    if (status == AdapterStatus::failed) return TrialStage::failed;
    const bool complete = status == AdapterStatus::done || status == AdapterStatus::stopped_early;
    return complete ? TrialStage::complete : TrialStage::partial;
}

/// Of other trials of its dataset that came to the rung of its newest value before it did.
std::vector<double> values_of_others(const AdapterTable& adapters,
                                     const std::vector<AdapterId>& trials, AdapterId trial) {
    const std::size_t rung = adapters[trial].state.rungs.size() - 1;
    std::vector<double> others;
    for (const AdapterId other : trials) {
        const std::vector<double>& values = adapters[other].state.rungs;
        if (other != trial && values.size() > rung) others.push_back(values[rung]);
    }
    return others;
}

}  // namespace

double objective_of(const SweepJob& sweep, const AdapterState& adapter) {
    constexpr double none = std::numeric_limits<double>::infinity();
    if (adapter.status == AdapterStatus::pruned && !adapter.rungs.empty()) {
        return adapter.rungs.back();  // whatever it came to on speculation
    }
    if (sweep.objective == SweepObjective::exact_match) {
        return adapter.last_exact_match < 0 ? none : -adapter.last_exact_match;
    }
    return adapter.last_eval_loss < 0 ? none : adapter.last_eval_loss;
}

std::vector<TrialStanding> standings(const Job& job, const AdapterTable& adapters,
                                     DatasetId dataset) {
    std::vector<TrialStanding> trials;
    for (const AdapterId a : adapters.all()) {
        if (!job.adapter(a).trial || job.adapter(a).dataset != dataset) continue;
        const AdapterState& state = adapters[a].state;
        trials.push_back({a, stage_of_trial(state.status), static_cast<int>(state.rungs.size()),
                          objective_of(*job.sweep, state)});
    }
    return rank_trials(std::move(trials));
}

std::vector<AdapterId> TrialSearch::trials_of(DatasetId dataset) const {
    std::vector<AdapterId> trials = adapters_.all();
    std::erase_if(trials, [&](AdapterId a) {
        return !job_.adapter(a).trial || job_.adapter(a).dataset != dataset;
    });
    return trials;
}

std::vector<AdapterId> TrialSearch::at_rung(const std::vector<AdapterId>& trained) const {
    std::vector<AdapterId> trials = trained;
    std::erase_if(trials, [this](AdapterId a) {
        return adapters_[a].state.status != AdapterStatus::running ||
               adapters_.steps_to_rung(a) > 0 || adapters_.steps_left(a) == 0;
    });
    return active() ? trials : std::vector<AdapterId>{};
}

void TrialSearch::arrived(const std::vector<AdapterId>& trials) {
    for (const AdapterId trial : trials) {
        note_value(trial, objective_of(*job_.sweep, adapters_[trial].state));
    }
    judge();
}

/// Rungs of short trials may lie at one step: the value is that of all of them.
void TrialSearch::note_value(AdapterId trial, double value) {
    AdapterState& state = adapters_[trial].state;
    state.rungs.push_back(value);
    state.status = AdapterStatus::parked;
    log::info(cat("trial ", job_.adapter(trial).name, " is at rung ", state.rungs.size(), " of ",
                  job_.sweep->rungs, ", step ", state.steps));
    if (job_.sweep->scheduler == TrialScheduler::halving) return;
    const std::vector<double> others =
        values_of_others(adapters_, trials_of(job_.adapter(trial).dataset), trial);
    if (judge_at_once(*job_.sweep, others, value) == RungDecision::promote) {
        promote(trial);
    } else {
        prune(trial, cat("pruned at rung ", state.rungs.size(), " beside ", others.size(),
                         others.size() == 1 ? " other" : " others"));
    }
}

void TrialSearch::judge() {
    if (!active() || job_.sweep->scheduler != TrialScheduler::halving) return;
    for (std::size_t d = 0; d < job_.datasets.size(); ++d) judge_dataset(static_cast<DatasetId>(d));
}

/// Where another one has come to the same value and goes on: that the order of trials decided.
std::string TrialSearch::tie_text(const std::vector<AdapterId>& trials,
                                  const std::vector<TrialRecord>& records,
                                  const std::vector<RungDecision>& decisions,
                                  std::size_t pruned) const {
    const int rung = records[pruned].promoted;
    const auto at = static_cast<std::size_t>(rung);
    for (std::size_t t = 0; t < trials.size(); ++t) {
        const TrialRecord& other = records[t];
        const bool now = other.promoted == rung && decisions[t] == RungDecision::promote;
        if ((other.promoted <= rung && !now) || other.values.size() <= at) continue;
        if (compared(other.values[at]) != compared(records[pruned].values[at])) continue;
        return cat("; ", job_.adapter(trials[t]).name,
                   " came to the same value, and the order of trials decided");
    }
    return "";
}

void TrialSearch::judge_dataset(DatasetId dataset) {
    const std::vector<AdapterId> trials = trials_of(dataset);
    std::vector<TrialRecord> records;
    for (const AdapterId a : trials) {
        const AdapterState& state = adapters_[a].state;
        const bool complete = stage_of_trial(state.status) == TrialStage::complete;
        records.push_back({state.rungs, state.promoted, state.status == AdapterStatus::pruned,
                           !complete && !is_unfinished(state.status)});
        // One that gained no more, and stopped, is at all rungs with what it came to.
        const auto rungs = static_cast<std::size_t>(job_.sweep->rungs - 1);
        if (complete) records.back().values.resize(rungs, objective_of(*job_.sweep, state));
    }
    const std::vector<RungDecision> decisions = judge_halving(*job_.sweep, records);
    bool again = false;
    for (std::size_t t = 0; t < trials.size(); ++t) {
        AdapterState& state = adapters_[trials[t]].state;
        if (!is_unjudged(state)) continue;
        const int rung = state.promoted + 1;
        if (decisions[t] == RungDecision::promote) promote(trials[t]);
        if (decisions[t] == RungDecision::prune) {
            prune(trials[t], cat("pruned at rung ", rung, ": others hold all places of the next",
                                 tie_text(trials, records, decisions, t)));
        }
        again = again || (decisions[t] == RungDecision::promote && is_unjudged(state));
    }
    if (again) judge_dataset(dataset);
}

std::vector<AdapterId> TrialSearch::speculation() const {
    if (!active() || job_.sweep->speculate == Speculation::never) return {};
    if (job_.parallel.by_workers()) return {};
    /// Fewest better ones at its rung first; among equals those that have come farthest.
    using Order = std::tuple<std::size_t, int, AdapterId>;
    std::vector<Order> order;
    for (std::size_t d = 0; d < job_.datasets.size(); ++d) {
        std::map<int, std::vector<std::pair<double, AdapterId>>> at_rungs;
        for (const AdapterId a : trials_of(static_cast<DatasetId>(d))) {
            const AdapterState& state = adapters_[a].state;
            if (!is_unjudged(state)) continue;
            const double value = state.rungs[static_cast<std::size_t>(state.promoted)];
            at_rungs[state.promoted].emplace_back(compared(value), a);
        }
        for (auto& [rung, trials] : at_rungs) {
            std::sort(trials.begin(), trials.end());
            for (std::size_t better = 0; better < trials.size(); ++better) {
                const AdapterId trial = trials[better].second;
                if (adapters_.steps_to_stop(trial) > 0) order.emplace_back(better, -rung, trial);
            }
        }
    }
    std::sort(order.begin(), order.end());
    std::vector<AdapterId> result;
    result.reserve(order.size());
    for (const Order& entry : order) result.push_back(std::get<AdapterId>(entry));
    return result;
}

void TrialSearch::promote(AdapterId trial) {
    AdapterState& state = adapters_[trial].state;
    const double value = state.rungs.back();
    ++state.promoted;
    log::info(cat("trial ", job_.adapter(trial).name, " goes on after rung ", state.promoted));
    if (is_unjudged(state)) return;
    state.status = AdapterStatus::waiting;
    if (adapters_.steps_to_stop(trial) <= 0 && adapters_.steps_left(trial) > 0) {
        note_value(trial, value);
    }
}

void TrialSearch::prune(AdapterId trial, const std::string& why) {
    AdapterState& state = adapters_[trial].state;
    state.status = AdapterStatus::pruned;
    state.reason = why;
    state.rungs.resize(static_cast<std::size_t>(state.promoted) + 1);
    log::info(cat("trial ", job_.adapter(trial).name, " is ", why));
}

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

#include "train/search/sweep_records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "config/best_job.h"
#include "config/job_yaml.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "io/run_files/status_file.h"
#include "plan/rungs.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

std::string sweep_file(const Job& job, const char* name) {
    return cat(job.run.dir, "/sweep/", name);
}

/// The best of a dataset so far; none while none has a value.
const TrialStanding* winner(const std::vector<TrialStanding>& trials) {
    return trials.empty() || !std::isfinite(trials.front().value) ? nullptr : &trials.front();
}

std::string evaluation_text(const AdapterJob& adapter, double loss, double accuracy) {
    return cat("eval loss ", loss < 0 ? "-" : format_fixed(loss, 4), ", ", accuracy_name({adapter}),
               " ", accuracy < 0 ? "-" : format_fixed(100.0 * accuracy, 1) + "%");
}

std::string last_evaluation(const AdapterJob& adapter, const AdapterState& state) {
    return evaluation_text(adapter, state.last_eval_loss, state.last_exact_match);
}

/// Where the next trial is as good: that the order of trials decided.
std::string tie_of_next(const std::vector<TrialStanding>& trials, std::size_t place) {
    if (place + 1 >= trials.size()) return "";
    const TrialStanding& one = trials[place];
    const TrialStanding& next = trials[place + 1];
    const bool tie = one.stage == next.stage && compared(one.value) == compared(next.value) &&
                     (one.stage == TrialStage::complete || one.rungs == next.rungs);
    return tie ? " (the next is as good; the order of trials decided)" : "";
}

std::string board_of(const Job& job, const AdapterTable& adapters, DatasetId dataset) {
    const std::vector<TrialStanding> trials = standings(job, adapters, dataset);
    if (trials.empty()) return "";
    std::string text =
        cat("sweep on ", job.dataset(dataset).name, ", ", trials.size(), " trials\n");
    const AdapterState& first = adapters[trials.front().trial].state;
    text += cat("  base: ",
                evaluation_text(job.adapter(trials.front().trial), first.first_eval_loss,
                                first.first_exact_match),
                "\n");
    for (const AdapterId a : adapters.all()) {
        if (job.adapter(a).name != job.sweep->reference || job.adapter(a).dataset != dataset)
            continue;
        text += cat("  reference ", job.adapter(a).name, ": ",
                    last_evaluation(job.adapter(a), adapters[a].state), "\n");
    }
    const auto shown = std::min(trials.size(), static_cast<std::size_t>(job.sweep->top_k));
    for (std::size_t i = 0; i < shown; ++i) {
        const AdapterJob& adapter = job.adapter(trials[i].trial);
        const AdapterState& state = adapters[trials[i].trial].state;
        if (!std::isfinite(trials[i].value)) break;
        const bool complete = trials[i].stage == TrialStage::complete;
        text += cat("  ", i + 1, ". ", adapter.name, ": ", last_evaluation(adapter, state),
                    complete ? "" : cat(", after ", state.steps, " steps"), tie_of_next(trials, i),
                    "\n");
    }
    return text;
}

}  // namespace

std::string budget_text(const SweepJob& sweep) {
    return cat("the sweep's budget of ", format_exact(sweep.budget_hours), " h is spent");
}

std::string SweepRecords::folder_of(AdapterId adapter) const {
    return job_.run.dir + "/adapters/" + job_.adapter(adapter).name;
}

bool SweepRecords::records(AdapterId adapter) const {
    return job_.adapter(adapter).trial || job_.parallel.by_workers();
}

std::string SweepRecords::state_path() const {
    return job_.sweep ? sweep_file(job_, "state.json")
                      : checkpoint_folder(job_).string() + "/ended.json";
}

void SweepRecords::recall() {
    const std::string path = state_path();
    if (!records_ends() || !fs::exists(path)) return;
    const RunState known = run_state_from_json(read_text(path), job_, path);
    for (const AdapterId a : adapters_.all()) {
        const AdapterState& from = known.adapters[index(a)];
        AdapterState& state = adapters_[a].state;
        if (!records(a)) continue;
        if (!is_unfinished(state.status)) {
            recorded_.insert(a);
        } else if (!is_unfinished(from.status)) {
            state = from;
            recorded_.insert(a);
            adapters_.reached(std::max(adapters_.round(), known.round));
        } else {
            recall_rungs(a, from);
        }
    }
}

void SweepRecords::recall_rungs(AdapterId trial, const AdapterState& from) {
    AdapterState& state = adapters_[trial].state;
    if (from.rungs.size() > state.rungs.size() || from.promoted > state.promoted) {
        state.rungs = from.rungs;
        state.promoted = from.promoted;
        state.status = AdapterStatus::parked;
        if (!is_untouched(state)) {
            state.last_eval_loss = from.last_eval_loss;
            state.last_exact_match = from.last_exact_match;
        }
    }
    forget_unjudged_ahead(trial, state);
    const bool judged = state.rungs.size() == static_cast<std::size_t>(state.promoted);
    if (judged && state.status == AdapterStatus::parked) state.status = AdapterStatus::waiting;
}

/// A trial that was to be judged by steps which no checkpoint has takes them again, so that its
/// metrics have them, and is evaluated there again. A decision stays.
void SweepRecords::forget_unjudged_ahead(AdapterId trial, AdapterState& state) const {
    const std::int32_t left = adapters_.steps_left(trial);
    const std::int32_t total = state.steps + left;
    while (state.rungs.size() > static_cast<std::size_t>(state.promoted) &&
           rung_step(*job_.sweep, total, static_cast<int>(state.rungs.size()) - 1) > state.steps) {
        state.rungs.pop_back();
    }
}

/// Those that sweep.top_k has place for, of all datasets.
std::set<AdapterId> SweepRecords::best_trials() const {
    std::set<AdapterId> best;
    for (std::size_t d = 0; d < job_.datasets.size(); ++d) {
        std::vector<TrialStanding> trials = standings(job_, adapters_, static_cast<DatasetId>(d));
        trials.resize(std::min(trials.size(), static_cast<std::size_t>(job_.sweep->top_k)));
        for (const TrialStanding& trial : trials) {
            const AdapterStatus status = adapters_[trial.trial].state.status;
            const bool ended =
                trial.stage == TrialStage::complete || status == AdapterStatus::stopped;
            if (ended) best.insert(trial.trial);
        }
    }
    return best;
}

bool SweepRecords::is_wanted(AdapterId adapter) const {
    if (!job_.sweep || !job_.adapter(adapter).trial) return true;
    if (job_.sweep->exports == SweepExport::best) return best_trials().contains(adapter);
    return job_.sweep->exports == SweepExport::all;
}

void SweepRecords::write_done(AdapterId trial) const {
    std::string text = done_text(job_.eval, adapters_[trial].state);
    text.insert(text.find('\n'), ", not kept");
    write_text_atomic(folder_of(trial) + "/DONE", text);
}

/// Also weights that a start of the run before this one has left.
void SweepRecords::take_back_exports() {
    if (job_.sweep->exports == SweepExport::all) return;
    std::set<AdapterId> wanted;
    if (job_.sweep->exports == SweepExport::best) wanted = best_trials();
    for (const AdapterId a : recorded_) {
        const AdapterState& state = adapters_[a].state;
        const bool trial = job_.adapter(a).trial;
        if (!trial || !is_exportable(state.status) || wanted.contains(a)) continue;
        const fs::path weights = fs::path(folder_of(a)) / adapter_weights_name;
        const bool is_taken_back = fs::exists(folder_of(a) + "/DONE") && !fs::exists(weights);
        if (is_taken_back) continue;
        if (fs::remove(weights)) {
            log::info(cat("deleted export ", folder_of(a), ": no longer among the best"));
        }
        fs::remove(folder_of(a) + "/adapter_config.json");
        write_done(a);
    }
}

void SweepRecords::update(const std::vector<AdapterId>& ended) {
    if (!records_ends()) return;
    for (const AdapterId a : ended) {
        if (records(a) && !is_unfinished(adapters_[a].state.status)) recorded_.insert(a);
    }
    make_directory(fs::path(state_path()).parent_path().string());
    if (job_.sweep) {
        take_back_exports();
        write_best();
    }
    write_state();
}

/// Unfinished trials only with what their rungs say: a checkpoint has the rest.
void SweepRecords::write_state() const {
    RunState state = adapters_.state(0.0);
    for (const AdapterId a : adapters_.all()) {
        AdapterState& adapter = state.adapters[index(a)];
        state.round = std::max(state.round, adapter.steps);
        if (recorded_.contains(a)) continue;
        AdapterState kept = not_begun();
        kept.rungs = adapter.rungs;
        kept.promoted = adapter.promoted;
        kept.last_eval_loss = adapter.last_eval_loss;
        kept.last_exact_match = adapter.last_exact_match;
        adapter = kept;
    }
    write_text_atomic(state_path(), to_json(state, job_));
}

void SweepRecords::write_best() const {
    std::vector<AdapterId> best;
    for (std::size_t d = 0; d < job_.datasets.size(); ++d) {
        const auto trials = standings(job_, adapters_, static_cast<DatasetId>(d));
        if (const TrialStanding* first = winner(trials)) {
            best.push_back(first->trial);
        }
    }
    if (best.empty()) return;
    const Job job = job_of_best(job_, best, job_.run.dir + "/sweep/best");
    write_text_atomic(sweep_file(job_, "best.yaml"), to_yaml(job));
}

std::string SweepRecords::leaderboard(const Job& job, const AdapterTable& adapters) {
    std::string text;
    if (!job.sweep) return text;
    for (std::size_t d = 0; d < job.datasets.size(); ++d) {
        text += board_of(job, adapters, static_cast<DatasetId>(d));
    }
    return text;
}

}  // namespace loratrain

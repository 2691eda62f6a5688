#include <algorithm>
#include <chrono>
#include <thread>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "train/conductor.h"

/// Trials of a sweep between two streams; the pipeline is empty.

namespace loratrain {

namespace {

constexpr double seconds_per_hour = 3600.0;
constexpr std::chrono::milliseconds between_looks_for_trials{200};

}  // namespace

/// What starts of the run before this one have come to since the checkpoint.
void Conductor::recall_trials() {
    if (!parts_.job.sweep) return;
    sweep_.recall();
    search_.judge();
    release_trials();
}

/// Judges those that are at rungs, and whoever can be judged now that others have ended.
void Conductor::search_trials(const std::vector<AdapterId>& trained) {
    const std::vector<AdapterId> arrived = search_.at_rung(trained);
    evaluate_at_rungs(arrived);
    search_.arrived(arrived);
    if (budget_spent()) end_by_budget();
    journal_.flush();
    std::vector<AdapterId> ended = adapters_.all();
    std::erase_if(ended, [this](AdapterId a) {
        return !is_ended_trial(parts_.job.adapter(a), adapters_[a].state);
    });
    for (const AdapterId a : ended) {
        const AdapterStatus status = adapters_[a].state.status;
        const bool early = status == AdapterStatus::pruned || status == AdapterStatus::stopped;
        if (early && is_held(a) && sweep_.is_wanted(a)) export_adapter(a);
    }
    const bool news = std::any_of(ended.begin(), ended.end(),
                                  [this](AdapterId a) { return !sweep_.has_recorded(a); });
    if (news || !arrived.empty()) note_ends(ended);
    release_trials();
}

/// Where the stream has not done so.
void Conductor::evaluate_at_rungs(const std::vector<AdapterId>& trials) {
    std::vector<AdapterId> left = trials;
    std::erase_if(left, [this](AdapterId a) { return is_evaluated(a) && !regular_evaluation(); });
    if (!left.empty()) evaluate(left, parts_.job.sweep->rung_eval_samples);
}

void Conductor::note_ends(const std::vector<AdapterId>& trials) {
    if (parts_.desk != nullptr) return tell_ends(trials);
    if (!parts_.job.sweep) return;
    sweep_.update(trials);
    journal_.trials_ended();
}

bool Conductor::budget_spent() const {
    if (parts_.desk != nullptr) return false;  // the desk says it
    const double hours = parts_.job.sweep ? parts_.job.sweep->budget_hours : 0.0;
    if (hours <= 0 || clock_.elapsed() < hours * seconds_per_hour) return false;
    const std::vector<AdapterId> all = adapters_.all();
    return std::any_of(all.begin(), all.end(), [this](AdapterId a) {
        return parts_.job.adapter(a).trial && is_unfinished(adapters_[a].state.status);
    });
}

/// Trials under way are evaluated as they are.
void Conductor::end_by_budget() {
    const std::string why = budget_text(*parts_.job.sweep);
    log::info(why);
    std::vector<AdapterId> under_way;
    for (const AdapterId a : adapters_.all()) {
        AdapterState& state = adapters_[a].state;
        if (!parts_.job.adapter(a).trial || !is_unfinished(state.status)) continue;
        if (state.status == AdapterStatus::running && state.steps > 0) under_way.push_back(a);
        state.status = AdapterStatus::stopped;
        state.reason = why;
    }
    evaluate(under_way);
}

/// Memory of trials that have ended; no checkpoint needs it.
void Conductor::release_trials() {
    for (const AdapterId a : adapters_.all()) {
        if (!is_held(a) || !is_ended_trial(parts_.job.adapter(a), adapters_[a].state)) continue;
        post(ReleaseAdapter{a});
        performer_.release(a);
    }
}

/// Nothing is left to train: waits for more through the inbox.
void Conductor::wait_for_trials() {
    const double seconds = 60.0 * parts_.job.sweep->wait_minutes;
    const auto start = std::chrono::steady_clock::now();
    if (seconds > 0) log::info("waiting for more trials through the inbox");
    while (adapters_.finished() && seconds_since(start) < seconds && reason_to_stop().empty()) {
        activity::begin(activity::Task::plan);
        std::this_thread::sleep_for(between_looks_for_trials);
        channel_.progress();
        journal_.beat();
        obey_orders();
    }
}

}  // namespace loratrain

#include "train/services/dispatched_source.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "plan/schedule/admission.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

constexpr std::chrono::milliseconds between_looks_at_dispatcher{1};

AdapterClaim claim_of(const AdapterTable& adapters, AdapterId adapter) {
    const AdapterState& state = adapters[adapter].state;
    const bool trains = is_unfinished(state.status) && state.status != AdapterStatus::parked;
    return {trains, state.steps > 0, adapters.steps_left(adapter)};
}

}  // namespace

DispatchedSource::DispatchedSource(Worker& worker, DispatcherLink& dispatcher)
    : worker_(worker), dispatcher_(dispatcher) {
    worker_.journal.report_to(&dispatcher);
    for (const AdapterId a : worker_.adapters.all()) worker_.adapters[a].owned = false;
    worker_.adapters.admit({});
}

/// The dispatcher records those that have ended.
RunState DispatchedSource::state() const {
    RunState run = worker_.adapters.state(worker_.clock.elapsed());
    for (AdapterState& state : run.adapters) {
        if (is_unfinished(state.status)) continue;
        state = {};
        state.status = AdapterStatus::waiting;
    }
    return run;
}

// ---- between streams

bool DispatchedSource::begin_turn() {
    const bool has_begun = std::exchange(begun_, true);
    const std::string why = resting_ || !has_begun ? "" : reason_to_stop();
    if (!why.empty()) stop_working(why);
    dispatcher_.look();
    while (const std::optional<Decisions> decisions = dispatcher_.next()) obey(*decisions);
    if (!over_) ask_for_adapters(worker_.adapters);
    return !over_;
}

bool DispatchedSource::rest_without_work() {
    const std::vector<AdapterId> running = worker_.adapters.running();
    if (resting_ || running.empty()) {
        rest();
        return true;
    }
    const std::vector<AdapterId> at_rung = worker_.search.at_rung(running);
    if (at_rung.empty()) return false;
    // An earlier start was killed there.
    for (const AdapterId a : at_rung) worker_.adapters[a].stream.forget_evaluation();
    report_trained(at_rung);
    return true;
}

void DispatchedSource::after(const std::vector<AdapterId>& trained) {
    report_trained(trained);
    if (worker_.services->checkpoints.is_due(worker_.adapters.round())) save();
}

/// Nothing is there to train.
void DispatchedSource::rest() {
    activity::begin(activity::Task::plan);
    dispatcher_.send();
    std::this_thread::sleep_for(between_looks_at_dispatcher);
    worker_.ranks.progress();
}

ExitCode DispatchedSource::end() {
    dispatcher_.send();
    if (worker_.parts.keeps_records) worker_.parts.stop.obeyed();
    worker_.ranks.order(Finish{*over_});
    worker_.ranks.finish();
    return *over_;
}

std::string DispatchedSource::reason_to_stop() {
    return stop_ordered_.empty() ? worker_.reason_to_stop() : stop_ordered_;
}

void DispatchedSource::stop_working(const std::string& why) {
    save();
    resting_ = true;
    dispatcher_.report_stopped(why);
    dispatcher_.send();
}

// ---- what the worker reports

void DispatchedSource::ask_for_adapters(const AdapterTable& table) {
    const int now = resting_ ? 0 : places(table);
    if (now == places_) return;
    places_ = now;
    dispatcher_.report_places(now);
    dispatcher_.send();
}

/// Those that could train beside the ones that it has, and one more; none while one waits.
int DispatchedSource::places(const AdapterTable& table) const {
    const RunParts& parts = worker_.parts;
    std::vector<AdapterClaim> claims = table.claims();
    const auto had = std::count_if(claims.begin(), claims.end(),
                                   [](const AdapterClaim& claim) { return claim.unfinished; });
    const auto admitted = std::ssize(admit(parts.job, parts.plan, claims));
    if (admitted < had) return 0;
    for (const AdapterId a : worker_.adapters.all()) {
        if (!owns(a)) claims[index(a)] = claim_of(worker_.adapters, a);
    }
    return static_cast<int>(std::ssize(admit(parts.job, parts.plan, claims)) - admitted) + 1;
}

/// Those at rungs wait for the dispatcher's decision.
void DispatchedSource::report_trained(const std::vector<AdapterId>& trained) {
    report_rungs();
    const std::vector<AdapterId> arrived = worker_.search.at_rung(trained);
    worker_.services->rungs.evaluate(arrived);
    worker_.journal.flush();
    for (const AdapterId a : arrived) {
        worker_.adapters[a].state.status = AdapterStatus::parked;
        dispatcher_.report(a, worker_.state(a), true);
    }
    report_ends();
}

/// Trials that have left the stream at rungs and whose evaluations there have come.
void DispatchedSource::report_rungs() {
    std::vector<AdapterId> arrived = worker_.adapters.all();
    std::erase_if(arrived, [this](AdapterId a) {
        return !worker_.adapters[a].reports_rung || worker_.adapters.steps_to_come(a) > 0 ||
               !worker_.adapters.is_evaluated(a);
    });
    if (arrived.empty()) return;
    worker_.journal.flush();
    for (const AdapterId a : arrived) {
        dispatcher_.report(a, worker_.state(a), true);
        worker_.adapters[a].reports_rung = false;
    }
    dispatcher_.send();
}

/// All that has ended, with an empty pipeline.
void DispatchedSource::report_ends() {
    std::vector<AdapterId> ended = worker_.adapters.all();
    std::erase_if(ended, [this](AdapterId a) {
        const AdapterRun& run = worker_.adapters[a];
        return !run.owned || is_unfinished(run.state.status) || run.end_reported;
    });
    for (const AdapterId a : ended) {
        const AdapterState& state = worker_.state(a);
        const bool was_ordered = state.status == AdapterStatus::pruned || !state.reason.empty();
        if (worker_.holds(a) && was_ordered && worker_.sweep.is_wanted(a)) {
            worker_.services->exports.write_now(a);
        }
    }
    on_ends(ended);
    worker_.release(worker_.held());
}

void DispatchedSource::on_ends(const std::vector<AdapterId>& ended) {
    for (const AdapterId a : ended) {
        if (!std::exchange(worker_.adapters[a].end_reported, true)) {
            dispatcher_.report(a, worker_.state(a));
        }
    }
    dispatcher_.send();
}

void DispatchedSource::look_for_ends(bool /*rungs_changed*/) {
    std::vector<AdapterId> ended = worker_.adapters.all();
    std::erase_if(ended, [this](AdapterId a) {
        const AdapterRun& run = worker_.adapters[a];
        return !run.owned || is_unfinished(run.state.status) || run.end_reported ||
               worker_.services->exports.waits_for_files(a);
    });
    if (ended.empty()) return;
    worker_.journal.flush();
    on_ends(ended);
}

void DispatchedSource::save() {
    const double seconds = worker_.services->checkpoints.save();
    std::vector<AdapterId> saved;
    for (const AdapterId a : worker_.adapters.all()) {
        const AdapterState& state = worker_.state(a);
        if (!owns(a) || !is_unfinished(state.status)) continue;
        dispatcher_.report(a, state);
        saved.push_back(a);
    }
    dispatcher_.report_saved(saved, seconds);
    dispatcher_.send();
}

/// What the checkpoint of the stream has, of those that have neither ended since nor come to rungs,
/// where the dispatcher judges them by what was reported then.
void DispatchedSource::on_checkpoint(const StateAtRound& saved, double seconds) {
    const RunState then = saved.state(state());
    std::vector<AdapterId> adapters;
    for (const AdapterId a : worker_.adapters.all()) {
        const AdapterStatus status = worker_.state(a).status;
        const bool saves = owns(a) && is_unfinished(status) && status != AdapterStatus::parked;
        if (!saves || is_untouched(then.adapters[index(a)])) continue;  // it may have come since
        dispatcher_.report(a, then.adapters[index(a)]);
        adapters.push_back(a);
    }
    dispatcher_.report_saved(adapters, seconds);
    dispatcher_.send();
}

// ---- what the dispatcher decides

void DispatchedSource::obey(const Decisions& decisions) {
    if (decisions.elapsed_seconds >= 0) {
        worker_.clock.continue_from(decisions.elapsed_seconds);
        worker_.adapters.reached(std::max(worker_.adapters.round(), decisions.round));
    }
    for (const InboxFile& file : decisions.additions) worker_.services->growth.take_now(file);
    for (const AdapterUpdate& update : decisions.updates) take_update(update);
    for (const GivenAdapter& given : decisions.given) {
        if (given.worker == dispatcher_.worker()) take_over(given);
    }
    give_back(decisions.returned);
    for (const AdapterId a : decisions.ended) {
        if (owns(a)) stop_adapter(worker_, a);
    }
    if (decisions.budget_spent) end_trials_by_budget(worker_);
    if (!decisions.stop.empty()) stop_ordered_ = decisions.stop;
    over_ = decisions.over;
    report_ends();
}

/// An update of an own adapter matters only where it was decided at a rung.
void DispatchedSource::take_update(const AdapterUpdate& update) {
    AdapterRun& run = worker_.adapters[update.adapter];
    if (!run.owned) {
        run.state = update.state;
        if (run.state.status == AdapterStatus::running) run.state.status = AdapterStatus::waiting;
        return;
    }
    if (run.state.status != AdapterStatus::parked) return;
    run.state.rungs = update.state.rungs;
    run.state.promoted = update.state.promoted;
    run.state.status = update.state.status;
    run.state.reason = update.state.reason;
}

void DispatchedSource::take_over(const GivenAdapter& given) {
    AdapterRun& run = worker_.adapters[given.adapter];
    run.owned = true;
    --places_;
    worker_.adapters.reached(std::max(worker_.adapters.round(), run.state.steps));
    worker_.journal.take_over(given.adapter);
    if (given.checkpoint.empty()) return;
    worker_.ranks.order(LoadAdapter{given.adapter, given.checkpoint});
    worker_.ranks.perform_ordered();
}

/// So that another worker goes on with them, those that have begun from a checkpoint of them alone.
void DispatchedSource::give_back(const std::vector<ReturnedAdapter>& returned) {
    std::vector<AdapterId> mine;
    std::vector<AdapterId> begun;
    for (const ReturnedAdapter& r : returned) {
        const AdapterState& state = worker_.state(r.adapter);
        const bool asked = r.worker == dispatcher_.worker() && owns(r.adapter);
        if (!asked || !is_unfinished(state.status)) continue;
        mine.push_back(r.adapter);
        if (state.steps > 0) begun.push_back(r.adapter);
    }
    const std::string stored = store_for_others(begun);
    for (const AdapterId a : mine) {
        AdapterRun& run = worker_.adapters[a];
        run.owned = false;
        run.state.status = AdapterStatus::waiting;
        if (worker_.ranks.residence(a) != Residence::absent) {
            worker_.ranks.order(ReleaseAdapter{a});
            worker_.ranks.perform_ordered();
        }
        const bool has_begun = run.state.steps > 0;
        dispatcher_.report_returned({dispatcher_.worker(), a, has_begun ? stored : ""});
    }
    if (!mine.empty()) dispatcher_.send();
}

/// Its directory; "" without any.
std::string DispatchedSource::store_for_others(const std::vector<AdapterId>& adapters) {
    if (adapters.empty()) return "";
    worker_.journal.flush();  // who goes on has to find metrics of all steps before
    RunState run = state();
    for (const AdapterId a : worker_.adapters.all()) {
        if (std::find(adapters.begin(), adapters.end(), a) != adapters.end()) {
            dispatcher_.report(a, run.adapters[index(a)]);
        } else {
            run.adapters[index(a)] = {};
            run.adapters[index(a)].status = AdapterStatus::waiting;
        }
    }
    const std::string root = move_checkpoint_root(worker_.parts.checkpoints, ++moves_);
    worker_.services->checkpoints.save(adapters, run, root);
    return cat(root, "/", run.round);
}

void DispatchedSource::added(const InboxFile& file, const JobTail& tail) {
    for (const AdapterId a : worker_.adapters.grow()) worker_.adapters[a].owned = false;
    dispatcher_.added(file);
    if (worker_.parts.keeps_records) warn_of_additions(worker_.parts, file, tail);
}

// ---- while the stream goes on

/// Decisions have come that need an empty pipeline.
bool DispatchedSource::needs_drain(std::int32_t /*round*/) {
    return dispatcher_.any([this](const Decisions& decisions) { return need_drain(decisions); }) ||
           !reason_to_stop().empty();
}

bool DispatchedSource::need_drain(const Decisions& decisions) const {
    const bool in_stream = worker_.changes_in_stream();
    const auto is_mine = [this](const auto& entry) { return entry.worker == dispatcher_.worker(); };
    const bool more =
        std::any_of(decisions.given.begin(), decisions.given.end(), [&](const GivenAdapter& given) {
            return is_mine(given) && (in_stream ? !given.checkpoint.empty() : places_ > 1);
        });
    const bool fewer = std::any_of(decisions.returned.begin(), decisions.returned.end(), is_mine);
    const bool ends = std::any_of(decisions.ended.begin(), decisions.ended.end(),
                                  [this](AdapterId a) { return owns(a); });
    return more || fewer || ends || (!in_stream && judge_parked(decisions)) ||
           !decisions.additions.empty() || decisions.budget_spent || !decisions.stop.empty() ||
           decisions.over;
}

/// Trials that the worker has parked.
bool DispatchedSource::judge_parked(const Decisions& decisions) const {
    return std::any_of(decisions.updates.begin(), decisions.updates.end(),
                       [this](const AdapterUpdate& update) {
                           return owns(update.adapter) &&
                                  worker_.state(update.adapter).status == AdapterStatus::parked &&
                                  update.state.status != AdapterStatus::parked;
                       });
}

/// Who has not begun is taken, and decisions at rungs are; where anything else has come since
/// needs_drain() was asked, all waits for the next window.
bool DispatchedSource::change(const Progress& /*planned*/, StreamChange& /*change*/) {
    if (!worker_.changes_in_stream()) return true;
    const auto waits = [this](const Decisions& decisions) { return need_drain(decisions); };
    if (!dispatcher_.any(waits)) {
        while (const std::optional<Decisions> decisions = dispatcher_.next()) {
            for (const AdapterUpdate& update : decisions->updates) take_update(update);
            for (const GivenAdapter& given : decisions->given) {
                if (given.worker == dispatcher_.worker()) take_over(given);
            }
        }
    }
    report_rungs();
    return true;
}

}  // namespace loratrain

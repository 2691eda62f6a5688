#include "train/services/dispatch.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/services/services.h"
#include "train/services/stops.h"

namespace loratrain {

namespace {

constexpr std::chrono::milliseconds between_looks_at_dispatcher{1};
constexpr std::chrono::milliseconds longest_rest{200};  // of a joint run: people alone bring work

}  // namespace

DispatchService::DispatchService(Worker& worker, DispatcherLink& dispatcher)
    : worker_(worker), dispatcher_(dispatcher), rest_(between_looks_at_dispatcher) {
    if (worker_.is_joint()) return;
    begun_ = false;
    worker_.journal.report_to(&dispatcher);
    for (const AdapterId a : worker_.adapters.all()) worker_.adapters[a].owned = false;
    worker_.adapters.admit({});
}

RunState DispatchService::state() const {
    RunState run = worker_.run_state();
    if (worker_.is_joint()) return run;
    for (AdapterState& state : run.adapters) {
        if (!is_unfinished(state.status)) state = not_begun();
    }
    return run;
}

std::vector<AdapterId> DispatchService::owned(const std::vector<AdapterId>& adapters) const {
    std::vector<AdapterId> mine = adapters;
    std::erase_if(mine, [this](AdapterId a) { return !owns(a); });
    return mine;
}

// ---- between streams

/// The dispatcher of several workers has begun.
void DispatchService::begin(int signal, bool set_back) {
    worker_.signal = signal;
    if (!worker_.is_joint()) return;
    dispatcher_.recall();
    release_recorded();
    if (set_back) save();  // before metrics are cut back to the older checkpoint
    dispatcher_.begin();
    const std::string why = reason_to_stop();
    if (worker_.adapters.finished() || why.empty()) return;
    resting_ = true;
    dispatcher_.report_stopped(why);
    dispatcher_.send();
}

bool DispatchService::begin_turn() {
    worker_.services->growth.grow();
    worker_.services->arrivals.look_now();
    hear();
    if (std::exchange(begun_, true) && !resting_ && !over_) stop_or_save();
    if (!over_) ask_for_adapters(worker_.adapters);
    return !over_;
}

/// Stops, or saves, where there is a reason.
void DispatchService::stop_or_save() {
    std::string why = reason_to_stop();
    const bool has_trained = std::exchange(has_trained_, false);
    if (why.empty() && has_trained && worker_.services->redeployment.redeploys()) {
        redeploys_ = true;
        why = "the deployment changes";
    }
    if (!why.empty()) return stop_working(why);
    const CheckpointService& checkpoints = worker_.services->checkpoints;
    const bool due = has_trained && checkpoints.is_due(worker_.adapters.round());
    // All may wait for hours: for rollouts, or for people.
    const bool may_rest = worker_.is_joint() && changed_;
    const bool last = may_rest && worker_.adapters.finished();
    if (due || last || (may_rest && checkpoints.is_due_by_time())) save();
}

void DispatchService::stop_working(const std::string& why) {
    if (changed_) save();
    resting_ = true;
    dispatcher_.report_stopped(why);
    dispatcher_.send();
    hear();
}

/// Of those that have ended a checkpoint of a joint run keeps all, that of one of several workers
/// none.
void DispatchService::save() {
    const double seconds = worker_.services->checkpoints.save();
    changed_ = false;
    std::vector<AdapterId> saved;
    std::vector<AdapterId> ended;
    for (const AdapterId a : owned(worker_.adapters.all())) {
        const AdapterState& state = worker_.state(a);
        if (is_unfinished(state.status)) {
            dispatcher_.report(a, state);
            saved.push_back(a);
        } else if (worker_.is_joint()) {
            ended.push_back(a);
        }
    }
    dispatcher_.report_saved(saved, ended, seconds);
    dispatcher_.send();
}

bool DispatchService::rest_without_work() {
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

/// Nothing is there to train. The longer a joint run waits for people, the more seldom it looks at
/// the file system.
void DispatchService::rest() {
    activity::begin(activity::Task::plan);
    dispatcher_.send();
    std::this_thread::sleep_for(rest_);
    if (worker_.is_joint()) rest_ = std::min(2 * rest_, longest_rest);
    worker_.ranks.progress();
}

void DispatchService::after(const std::vector<AdapterId>& trained) {
    worker_.release(worker_.services->checkpoints.take_ended());
    report_trained(trained);
    has_trained_ = changed_ = true;
    rest_ = between_looks_at_dispatcher;
}

ExitCode DispatchService::end() {
    dispatcher_.send();
    if (worker_.parts.keeps_records && !redeploys_) worker_.parts.stop.obeyed();
    worker_.ranks.order(Finish{*over_, redeploys_});
    worker_.ranks.finish();
    return *over_;
}

std::string DispatchService::reason_to_stop() {
    return stop_ordered_.empty() ? worker_.reason_to_stop() : stop_ordered_;
}

// ---- what the worker reports

void DispatchService::ask_for_adapters(const AdapterTable& table) {
    if (worker_.is_joint()) return;  // it has them all
    const int now = resting_ ? 0 : worker_.services->admission.places(table);
    if (now == places_) return;
    places_ = now;
    dispatcher_.report_places(now);
    dispatcher_.send();
}

void DispatchService::report_trained(const std::vector<AdapterId>& trained) {
    report_rungs();
    const std::vector<AdapterId> arrived = worker_.search.at_rung(trained);
    worker_.services->rungs.evaluate(arrived);
    worker_.journal.flush();
    report_at_rung(arrived);
    report_ends();
}

/// They wait for the dispatcher's decision, which in a joint run is made at once.
void DispatchService::report_at_rung(const std::vector<AdapterId>& trials) {
    if (worker_.is_joint()) return dispatcher_.judge(trials);
    for (const AdapterId a : trials) {
        worker_.adapters[a].state.status = AdapterStatus::parked;
        dispatcher_.report_at_rung(a, worker_.state(a));
    }
}

void DispatchService::judge(const std::vector<AdapterId>& at_rung) {
    if (!at_rung.empty()) worker_.journal.flush();
    dispatcher_.judge(at_rung);
    look_for_ends();
}

/// Trials that have left the stream at rungs and whose evaluations there have come.
void DispatchService::report_rungs() {
    std::vector<AdapterId> arrived = worker_.adapters.all();
    std::erase_if(arrived, [this](AdapterId a) {
        return !worker_.adapters[a].reports_rung || worker_.adapters.steps_to_come(a) > 0 ||
               !worker_.adapters.is_evaluated(a);
    });
    if (arrived.empty()) return;
    worker_.journal.flush();
    for (const AdapterId a : arrived) {
        dispatcher_.report_at_rung(a, worker_.state(a));
        worker_.adapters[a].reports_rung = false;
    }
    dispatcher_.send();
}

std::vector<AdapterId> DispatchService::unreported_ends() const {
    std::vector<AdapterId> ended = owned(worker_.adapters.all());
    std::erase_if(ended, [this](AdapterId a) {
        return is_unfinished(worker_.state(a).status) || worker_.adapters[a].end_reported;
    });
    return ended;
}

/// All that has ended, with an empty pipeline.
void DispatchService::report_ends() {
    const std::vector<AdapterId> ended = unreported_ends();
    for (const AdapterId a : ended) {
        const AdapterState& state = worker_.state(a);
        const bool early =
            state.status == AdapterStatus::pruned || state.status == AdapterStatus::stopped;
        if (early && state.steps > 0 && worker_.holds(a) && worker_.sweep.is_wanted(a)) {
            worker_.services->exports.write_now(a);
        }
    }
    on_ends(ended);
    release_recorded();
}

/// Memory of those that have ended and that no checkpoint needs.
void DispatchService::release_recorded() {
    std::vector<AdapterId> recorded = worker_.held();
    std::erase_if(recorded, [this](AdapterId a) { return !worker_.sweep.records(a); });
    worker_.release(recorded);
}

void DispatchService::on_ends(const std::vector<AdapterId>& ended) {
    for (const AdapterId a : ended) {
        if (std::exchange(worker_.adapters[a].end_reported, true)) continue;
        dispatcher_.report(a, worker_.state(a));
        changed_ = true;
    }
    dispatcher_.send();
}

void DispatchService::look_for_ends() {
    if (!worker_.sweep.records_ends()) return;
    std::vector<AdapterId> ended = unreported_ends();
    std::erase_if(ended,
                  [this](AdapterId a) { return worker_.services->exports.waits_for_files(a); });
    if (ended.empty()) return;
    worker_.journal.flush();
    on_ends(ended);
}

/// What the checkpoint of the stream has. Of several workers those that have neither ended since
/// nor come to rungs, where the dispatcher judges them by what was reported then.
void DispatchService::on_checkpoint(const StateAtRound& saved, double seconds) {
    if (worker_.is_joint()) {
        dispatcher_.report_saved({}, saved.ended(), seconds);
        return dispatcher_.send();
    }
    const RunState then = saved.state(state());
    std::vector<AdapterId> adapters;
    for (const AdapterId a : owned(worker_.adapters.all())) {
        const bool saves = may_train(worker_.state(a).status);
        if (!saves || is_untouched(then.adapters[index(a)])) continue;  // it may have come since
        dispatcher_.report(a, then.adapters[index(a)]);
        adapters.push_back(a);
    }
    dispatcher_.report_saved(adapters, {}, seconds);
    dispatcher_.send();
}

// ---- what the dispatcher decides

/// With an empty pipeline.
void DispatchService::hear() {
    dispatcher_.look_for_orders();
    dispatcher_.look();
    while (!dispatcher_.decisions().empty()) {
        const Decisions next = std::move(dispatcher_.decisions().front());
        dispatcher_.decisions().pop_front();
        obey(next);
    }
    if (!worker_.is_joint()) return;
    dispatcher_.judge({});
    report_ends();
}

void DispatchService::obey(const Decisions& decisions) {
    if (decisions.elapsed_seconds >= 0) {
        worker_.clock.continue_from(decisions.elapsed_seconds);
        worker_.adapters.reached(std::max(worker_.adapters.round(), decisions.round));
    }
    for (const InboxFile& file : decisions.additions) worker_.services->growth.take_now(file);
    for (const AdapterUpdate& update : decisions.updates) take_update(update);
    for (const GivenAdapter& given : decisions.given) take_over(given);
    give_back(decisions.returned);
    for (const AdapterId a : owned(decisions.ended)) stop_adapter(worker_, a);
    if (decisions.budget_spent) end_trials_by_budget(worker_);
    if (!decisions.stop.empty()) stop_ordered_ = decisions.stop;
    over_ = decisions.over;
    report_ends();
}

/// Of an own adapter the worker knows all but what was decided at a rung.
void DispatchService::take_update(const AdapterUpdate& update) {
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

/// Unless it goes to another worker.
void DispatchService::take_over(const GivenAdapter& given) {
    if (given.worker != dispatcher_.worker()) return;
    AdapterRun& run = worker_.adapters[given.adapter];
    run.owned = changed_ = true;
    --places_;
    worker_.adapters.reached(std::max(worker_.adapters.round(), run.state.steps));
    worker_.journal.take_over(given.adapter);
    if (given.checkpoint.empty()) return;
    worker_.ranks.order(LoadAdapter{given.adapter, given.checkpoint});
    worker_.ranks.perform_ordered();
}

/// So that another worker goes on with them, those that have begun from a checkpoint of them alone.
void DispatchService::give_back(const std::vector<ReturnedAdapter>& returned) {
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
std::string DispatchService::store_for_others(const std::vector<AdapterId>& adapters) {
    if (adapters.empty()) return "";
    worker_.journal.flush();  // who goes on has to find metrics of all steps before
    RunState run = state();
    for (const AdapterId a : worker_.adapters.all()) {
        if (std::find(adapters.begin(), adapters.end(), a) != adapters.end()) {
            dispatcher_.report(a, run.adapters[index(a)]);
        } else {
            run.adapters[index(a)] = not_begun();
        }
    }
    const std::string root = move_checkpoint_root(worker_.parts.checkpoints, ++moves_);
    worker_.services->checkpoints.save(adapters, run, root);
    return cat(root, "/", run.round);
}

// ---- while the stream goes on

/// Orders about a sweep change what its trials are judged beside.
bool DispatchService::takes_orders_in_stream() const {
    return !worker_.parts.job.sweep && worker_.changes_in_stream();
}

bool DispatchService::takes_orders_before(std::int32_t round) const {
    return takes_orders_in_stream() && round < worker_.fixed_end;
}

void DispatchService::look_for_orders() {
    GrowthService& growth = worker_.services->growth;
    growth.window_passes();
    dispatcher_.look_for_orders();
    if (!takes_orders_in_stream()) return;
    for (const Decisions& decisions : dispatcher_.decisions()) growth.ask(decisions.additions);
}

bool DispatchService::needs_drain(std::int32_t round) {
    dispatcher_.look_for_orders();
    return any_needs_drain(round) || !reason_to_stop().empty();
}

/// What is behind additions may be about them: it waits until the job has grown.
bool DispatchService::any_needs_drain(std::int32_t round) const {
    for (const Decisions& decisions : dispatcher_.decisions()) {
        if (!decisions.additions.empty()) return !takes_orders_before(round);
        if (need_drain(decisions, round)) return true;
    }
    return false;
}

bool DispatchService::need_drain(const Decisions& decisions, std::int32_t round) const {
    const bool in_stream = worker_.changes_in_stream();
    const auto is_mine = [this](const auto& entry) { return entry.worker == dispatcher_.worker(); };
    const bool more =
        std::any_of(decisions.given.begin(), decisions.given.end(), [&](const GivenAdapter& given) {
            return is_mine(given) && (in_stream ? !given.checkpoint.empty() : places_ > 1);
        });
    const bool fewer = std::any_of(decisions.returned.begin(), decisions.returned.end(), is_mine);
    const std::vector<AdapterId> stops = owned(decisions.ended);
    const bool ends =
        !stops.empty() && (!takes_orders_before(round) || stops_need_drain(worker_, stops, round));
    return more || fewer || ends || (!in_stream && judge_parked(decisions)) ||
           decisions.budget_spent || !decisions.stop.empty() || decisions.over;
}

/// Trials that the worker has parked.
bool DispatchService::judge_parked(const Decisions& decisions) const {
    return std::any_of(decisions.updates.begin(), decisions.updates.end(),
                       [this](const AdapterUpdate& update) {
                           return owns(update.adapter) &&
                                  worker_.state(update.adapter).status == AdapterStatus::parked &&
                                  update.state.status != AdapterStatus::parked;
                       });
}

/// Who has not begun is taken, and decisions at rungs and stops are. All waits for the next window
/// behind files that are looked at, and where anything that needs an empty pipeline has come since
/// needs_drain() was asked.
bool DispatchService::change(const Progress& planned, StreamChange& change) {
    if (!worker_.changes_in_stream()) return true;
    auto& all = dispatcher_.decisions();
    const bool waits = any_needs_drain(planned.round);
    while (!waits && !all.empty() && all.front().additions.empty()) {
        const Decisions next = std::move(all.front());
        all.pop_front();
        for (const AdapterUpdate& update : next.updates) take_update(update);
        for (const GivenAdapter& given : next.given) take_over(given);
        for (const AdapterId a : owned(next.ended)) stop_in_stream(worker_, a, planned, change);
    }
    report_rungs();
    return true;
}

}  // namespace loratrain

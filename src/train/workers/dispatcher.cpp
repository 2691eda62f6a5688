#include "train/workers/dispatcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace loratrain {

namespace {

constexpr double seconds_between_looks = 0.2;
constexpr double hour_seconds = 3600.0;
constexpr double minute_seconds = 60.0;
constexpr std::int32_t most_steps = std::numeric_limits<std::int32_t>::max();

}  // namespace

Dispatcher::Dispatcher(const Parts& parts, RunLedger& ledger)
    : parts_(parts),
      ledger_(ledger),
      queues_(parts.job, ledger, parts.workers),
      known_(ledger.adapters.size()),
      saved_(ledger.adapters.size(), 0) {}

/// And its worker, if it has one, has written its files. The ledger of a joint run shows ends
/// before that, and so does every ledger of trials that are pruned and whose exports are wanted.
bool Dispatcher::is_ended(AdapterId adapter) const {
    const AdapterRun& run = ledger_.adapters[adapter];
    if (is_unfinished(run.state.status)) return false;
    const bool files_wanted = is_joint() || (queues_.owner(adapter) != AdapterQueues::nobody &&
                                             ledger_.sweep.is_wanted(adapter));
    return run.end_reported || !files_wanted;
}

Dispatcher::Known Dispatcher::known(AdapterId adapter) const {
    const AdapterState& state = ledger_.adapters[adapter].state;
    return {state.status == AdapterStatus::pruned, is_ended(adapter), state.rungs.size(),
            state.promoted};
}

// ---- the start

void Dispatcher::begin(const FormerRun& former) {
    ledger_.adapters.restore(former.state);
    ledger_.adapters.admit({});
    ledger_.clock.continue_from(former.state.elapsed_seconds);
    former_ = FormerCheckpoints(former.stored);
    recall();
    begin();
    queues_.assign(parts_.plan, parts_.datasets, parts_.met_shapes, former.checkpoints);
    decisions_.elapsed_seconds = ledger_.clock.elapsed();
    decisions_.round = ledger_.adapters.round();
    for (const AdapterId a : ledger_.adapters.all()) {
        const AdapterState& state = ledger_.adapters[a].state;
        if (!is_untouched(state)) decisions_.updates.push_back({a, state});
    }
    log_start(former);
    post();
}

void Dispatcher::recall() {
    ledger_.sweep.recall();
    for (const AdapterId a : ledger_.adapters.all()) {
        AdapterState& state = ledger_.adapters[a].state;
        // One whose value was not heard of is evaluated again.
        const bool is_known = state.rungs.size() > static_cast<std::size_t>(state.promoted);
        if (state.status == AdapterStatus::parked && !is_known) {
            state.status = AdapterStatus::waiting;
        }
    }
    ledger_.search.judge();
}

void Dispatcher::begin() {
    for (const AdapterId a : ledger_.adapters.all()) {
        AdapterRun& run = ledger_.adapters[a];
        run.end_reported = !is_unfinished(run.state.status);
        if (is_ended(a)) saved_[index(a)] = most_steps;
        known_[index(a)] = known(a);
    }
    inbox_.emplace(parts_.job.run.dir);
    ledger_.journal.start();
}

void Dispatcher::log_start(const FormerRun& former) {
    std::size_t ended = 0;
    std::size_t begun = 0;
    for (const AdapterId a : ledger_.adapters.all()) {
        if (is_ended(a)) {
            ++ended;
        } else if (!former.checkpoints[index(a)].empty()) {
            ++begun;
        }
    }
    for (const std::string& text : former.notes) log::warn(text);
    for (const std::string& text : former.damaged) {
        log::warn(cat("checkpoint cannot be used: ", text, "; trying the one before it"));
    }
    log::info(cat(parts_.workers, " workers of ", parts_.ranks / parts_.workers,
                  parts_.ranks == parts_.workers ? " rank" : " ranks",
                  " each: ", ledger_.adapters.size() - ended, " adapters to train, predicted ",
                  format_fixed(queues_.predicted_seconds(), 1), " s"));
    if (ended + begun > 0) {
        log::info(
            cat("continuing: ", ended, " adapters have ended, ", begun, " go on from checkpoints"));
    }
}

// ---- what workers say

void Dispatcher::take(const WorkerReport& report) {
    for (const std::string& line : report.log) {
        log::info(cat("worker ", report.worker, ": ", line));
    }
    for (const MetricsLine& line : report.metrics) {
        ledger_.journal.wrote(line.adapter, metrics_rows(line.text + "\n"));
    }
    if (report.tokens > 0) ledger_.journal.trained(report.tokens, report.round);
    queues_.trained(report.worker, report.tokens);
    ledger_.adapters.reached(std::max(ledger_.adapters.round(), report.round));
    for (const AdapterUpdate& update : report.states) {
        const auto& at_rung = report.at_rung;
        take_state(update,
                   std::find(at_rung.begin(), at_rung.end(), update.adapter) != at_rung.end());
    }
    if (!report.at_rung.empty()) ledger_.search.arrived(report.at_rung);
    note_changes();
    note_saved(report);
    for (const ReturnedAdapter& returned : report.returned) take_returned(returned);
    if (report.places) queues_.ask(report.worker, *report.places);
    if (report.stopped) {
        stopped_workers_.insert(report.worker);
        if (stop_reason_.empty()) decisions_.stop = stop_reason_ = *report.stopped;
    }
}

void Dispatcher::judge(const std::vector<AdapterId>& at_rung) {
    ledger_.search.arrived(at_rung);
    note_changes();
}

/// What its rungs say is the dispatcher's to know. The ledger of a joint run has all the rest.
void Dispatcher::take_state(const AdapterUpdate& update, bool at_rung) {
    if (is_joint()) return;
    AdapterRun& run = ledger_.adapters[update.adapter];
    run.end_reported = !is_unfinished(update.state.status);
    AdapterState& state = run.state;
    if (!is_unfinished(state.status)) return;
    AdapterState taken = update.state;
    taken.rungs = state.rungs;
    taken.promoted = state.promoted;
    if (taken.status == AdapterStatus::parked && !at_rung) taken.status = state.status;
    state = taken;
}

/// Records those that have ended, and lets the workers know whatever they decide by.
void Dispatcher::note_changes() {
    std::vector<AdapterId> ended;
    bool changed = false;
    for (const AdapterId a : ledger_.adapters.all()) {
        const Known now = known(a);
        if (now.ended) ended.push_back(a);
        if (now == known_[index(a)]) continue;
        known_[index(a)] = now;
        if (now.ended) queues_.note_end(a);
        if (!is_joint()) decisions_.updates.push_back({a, ledger_.adapters[a].state});
        changed = true;
    }
    if (!changed) return;
    if (!is_joint()) ledger_.search.judge();
    ledger_.sweep.update(ended);
    ledger_.journal.trials_ended();
    for (const AdapterId a : ended) {
        if (ledger_.sweep.has_recorded(a)) note_durable(a);
    }
    former_.remove_superseded(saved_);
    note_changes();
}

/// No later start trains the adapter, which has ended: an order to stop it is done with.
void Dispatcher::note_durable(AdapterId adapter) {
    saved_[index(adapter)] = most_steps;
    const std::string& name = parts_.job.adapter(adapter).name;
    if (stopping_.erase(name) > 0) inbox_->obeyed(name);
}

void Dispatcher::note_saved(const WorkerReport& report) {
    queues_.note_saving(report.saving_seconds);
    for (const AdapterId a : report.saved_ends) note_durable(a);
    if (report.saved.empty()) return;
    for (const AdapterId a : report.saved) {
        saved_[index(a)] = std::max(saved_[index(a)], ledger_.adapters[a].state.steps);
    }
    former_.remove_superseded(saved_);
}

void Dispatcher::take_returned(const ReturnedAdapter& returned) {
    const AdapterId adapter = returned.adapter;
    queues_.take_back(returned);
    if (returned.checkpoint.empty()) {
        if (stopping_.contains(parts_.job.adapter(adapter).name)) end_free(adapter, "");
        return;
    }
    saved_[index(adapter)] = 0;  // what its old worker has of it leaves with its next checkpoint
    former_.add(returned.checkpoint, adapter, ledger_.adapters[adapter].state.steps);
}

/// The worker that an adapter comes from may have given it back before it heard of an order.
void Dispatcher::give() {
    if (is_joint() || !stop_reason_.empty()) return;
    const std::size_t before = decisions_.given.size();
    queues_.give(decisions_);
    for (std::size_t i = before; i < decisions_.given.size(); ++i) {
        if (!given_) given_ = std::chrono::steady_clock::now();
        const AdapterId adapter = decisions_.given[i].adapter;
        if (stopping_.contains(parts_.job.adapter(adapter).name)) {
            decisions_.ended.push_back(adapter);
        }
    }
}

// ---- what people want

void Dispatcher::look_for_orders() {
    if (!inbox_ || over_) return;
    take_orders();
    look_at_budget();
    post();
}

void Dispatcher::take_orders() {
    looked_ = std::chrono::steady_clock::now();
    const Inbox::Orders orders = inbox_->look();
    for (const std::string& name : orders.stops) stop_adapter(name);
    if (!stop_reason_.empty()) return;
    for (const InboxFile& file : orders.additions) {
        if (adding_.insert(file.path).second) new_files_.push_back(file);
    }
}

void Dispatcher::refuse(const InboxFile& file, const std::string& why) {
    inbox_->reject(file, why);
    adding_.erase(file.path);
}

/// The job has them now.
void Dispatcher::added(const InboxFile& file) {
    adding_.erase(file.path);
    const std::vector<AdapterId> added = ledger_.adapters.grow();
    known_.resize(ledger_.adapters.size());
    saved_.resize(ledger_.adapters.size(), 0);
    ledger_.journal.begin(added);
    if (!is_joint()) {
        queues_.add(added);
        decisions_.additions.push_back(file);
    }
    budget_reported_ = false;
    log::info(cat("took ", added.size(),
                  added.size() == 1 ? " more adapter from " : " more adapters from ", file.path));
}

void Dispatcher::stop_adapter(const std::string& name) {
    if (stopping_.contains(name)) return;
    const auto& adapters = parts_.job.adapters;
    const auto found = std::find_if(adapters.begin(), adapters.end(),
                                    [&](const AdapterJob& a) { return a.name == name; });
    if (found == adapters.end()) return inbox_->reject_stop(name, "this run has no such adapter");
    const auto adapter = static_cast<AdapterId>(found - adapters.begin());
    if (is_ended(adapter) && saved_[index(adapter)] == most_steps) return inbox_->obeyed(name);
    stopping_.insert(name);
    // One that has begun goes to a worker first, which exports it (give).
    if (queues_.waits_begun(adapter)) return;
    if (!is_joint() && queues_.owner(adapter) == AdapterQueues::nobody) {
        return end_free(adapter, "");
    }
    decisions_.ended.push_back(adapter);
}

/// One that no worker has.
void Dispatcher::end_free(AdapterId adapter, const std::string& why) {
    AdapterState& state = ledger_.adapters[adapter].state;
    state.status = AdapterStatus::stopped;
    state.reason = why;
    log::info(cat("adapter ", parts_.job.adapter(adapter).name, " is stopped at step ", state.steps,
                  why.empty() ? ", as requested" : ": " + why));
    note_changes();
}

void Dispatcher::look_at_budget() {
    const double hours = parts_.job.sweep ? parts_.job.sweep->budget_hours : 0.0;
    if (hours <= 0 || ledger_.clock.elapsed() < hours * hour_seconds) return;
    bool any = false;
    for (const AdapterId a : ledger_.adapters.all()) {
        const bool ended = !is_unfinished(ledger_.adapters[a].state.status);
        if (!parts_.job.adapter(a).trial || ended) continue;
        if (!is_joint() && queues_.owner(a) == AdapterQueues::nobody) {
            end_free(a, budget_text(*parts_.job.sweep));
        } else {
            any = true;
        }
    }
    if (any && !std::exchange(budget_reported_, true)) decisions_.budget_spent = true;
}

// ---- the end

bool Dispatcher::all_ended() const {
    const std::vector<AdapterId> all = ledger_.adapters.all();
    return std::all_of(all.begin(), all.end(), [this](AdapterId a) { return is_ended(a); });
}

bool Dispatcher::all_stopped() const {
    return std::ssize(stopped_workers_) == parts_.workers;
}

/// The last ends may be followed by orders that add adapters; the files of these have to settle.
void Dispatcher::look_at_end() {
    if (!all_ended() || !adding_.empty()) {
        idle_.reset();
        if (all_stopped()) end(ExitCode::stopped_resume_me);
        return;
    }
    const double wait = parts_.job.sweep ? minute_seconds * parts_.job.sweep->wait_minutes : 0.0;
    if (!idle_) {
        idle_ = std::chrono::steady_clock::now();
        if (given_) trained_seconds_ = seconds_since(*given_);
        inbox_->let_settle();
        take_orders();
        if (adding_.empty() && wait > 0 && stop_reason_.empty()) {
            log::info("waiting for more trials through the inbox");
        }
        return;
    }
    if (stop_reason_.empty() && seconds_since(*idle_) < wait) return;
    end(ledger_.adapters.any_failed() ? ExitCode::some_adapters_failed : ExitCode::done);
}

void Dispatcher::end(ExitCode code) {
    const bool stopped = code == ExitCode::stopped_resume_me;
    const bool failed = ledger_.adapters.any_failed();
    const std::string leaderboard = SweepRecords::leaderboard(parts_.job, ledger_.adapters);
    if (!leaderboard.empty()) log::block(leaderboard);
    if (!stopped) stop_reason_.clear();
    ledger_.journal.end(stopped ? "stopped" : "done",
                        stopped ? stop_reason_ : std::string(failed ? "some adapters failed" : ""));
    decisions_.over = code;
    over_ = true;
}

// ---- to and from the workers

void Dispatcher::serve() {
    if (!is_joint()) parts_.leaders->progress();
    if (!inbox_) return;
    while (!is_joint()) {
        const std::optional<std::string> text = parts_.leaders->next_report();
        if (!text) break;
        take(worker_report_from_bytes(*text));
    }
    if (over_) return;
    if (!is_joint() && seconds_since(looked_) > seconds_between_looks) take_orders();
    look_at_budget();
    give();
    look_at_end();
    ledger_.journal.beat();
    post();
}

void Dispatcher::post() {
    if (!decisions_.empty()) {
        if (!is_joint()) parts_.leaders->post(to_bytes(decisions_));
        decisions_.additions.clear();  // the worker on this rank has had them
        own_.push_back(std::exchange(decisions_, {}));
    }
    if (!new_files_.empty()) own_.emplace_back().additions = std::exchange(new_files_, {});
}

std::optional<Decisions> Dispatcher::next_of_own() {
    if (own_.empty()) return std::nullopt;
    Decisions decisions = std::move(own_.front());
    own_.pop_front();
    return decisions;
}

std::string Dispatcher::makespan_text() const {
    const double predicted = queues_.predicted_seconds();
    if (trained_seconds_ <= 0 || predicted <= 0) return "";
    return cat("on ", parts_.workers, " workers: predicted ", format_fixed(predicted, 1),
               " s, took ", format_fixed(trained_seconds_, 1), " s (",
               format_fixed(trained_seconds_ / predicted, 2), " of it)");
}

}  // namespace loratrain

#include "train/workers/dispatcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "plan/sweep/worker_queues.h"

namespace loratrain {

namespace {

constexpr double seconds_between_looks = 0.2;
constexpr double hour_seconds = 3600.0;
constexpr double minute_seconds = 60.0;
constexpr std::int32_t most_steps = std::numeric_limits<std::int32_t>::max();

}  // namespace

Dispatcher::Dispatcher(const Parts& parts)
    : parts_(parts),
      adapters_(parts.job, parts.plan, parts.datasets),
      search_(parts.job, adapters_),
      sweep_(parts.job, adapters_),
      journal_(parts.job, parts.plan, adapters_, clock_, parts.ranks, parts.view),
      workers_(static_cast<std::size_t>(parts.workers)),
      owners_(adapters_.size(), nobody),
      reported_(adapters_.size()),
      saved_(adapters_.size(), 0) {}

bool Dispatcher::is_ended(AdapterId adapter) const {
    return !is_unfinished(adapters_[adapter].state.status);
}

void Dispatcher::begin(const FormerRun& former) {
    adapters_.restore(former.state);
    adapters_.admit({});
    clock_.continue_from(former.state.elapsed_seconds);
    checkpoints_ = former.checkpoints;
    former_ = FormerCheckpoints(former.stored);
    sweep_.recall();
    for (const AdapterId a : adapters_.all()) {
        AdapterState& state = adapters_[a].state;
        // One whose value was not heard of is evaluated again.
        const bool known = state.rungs.size() > static_cast<std::size_t>(state.promoted);
        if (state.status == AdapterStatus::parked && !known) state.status = AdapterStatus::waiting;
    }
    search_.judge();
    inbox_.emplace(parts_.job.run.dir);
    journal_.start();
    queue_adapters();
    announce_start(former);
    post();
}

void Dispatcher::announce_start(const FormerRun& former) {
    decisions_.elapsed_seconds = clock_.elapsed();
    decisions_.round = adapters_.round();
    std::size_t ended = 0;
    std::size_t begun = 0;
    for (const AdapterId a : adapters_.all()) {
        const AdapterState& state = adapters_[a].state;
        if (!is_untouched(state)) decisions_.updates.push_back({a, state});
        if (is_ended(a)) {
            ++ended;
            saved_[index(a)] = most_steps;
        } else if (!checkpoints_[index(a)].empty()) {
            ++begun;
        }
        reported_[index(a)] = {is_ended(a), state.rungs.size(), state.promoted};
    }
    for (const std::string& text : former.notes) log::warn(text);
    for (const std::string& text : former.damaged) {
        log::warn(cat("checkpoint cannot be used: ", text, "; the one before it is tried"));
    }
    log::info(cat(parts_.workers, " workers of ", parts_.ranks / parts_.workers,
                  parts_.ranks == parts_.workers ? " rank" : " ranks",
                  " each: ", adapters_.size() - ended, " adapters to train, predicted ",
                  format_fixed(predicted_seconds_, 1), " s"));
    if (ended + begun > 0) {
        log::info(
            cat("continuing: ", ended, " adapters have ended, ", begun, " go on from checkpoints"));
    }
}

void Dispatcher::queue_adapters() {
    std::vector<std::int32_t> left(adapters_.size(), 0);
    for (const AdapterId a : adapters_.all()) {
        if (!is_ended(a)) left[index(a)] = adapters_.steps_left(a);
    }
    WorkerQueues queues = queue_for_workers(parts_.job, parts_.plan, parts_.datasets, left,
                                            parts_.workers, parts_.met_shapes);
    for (std::size_t w = 0; w < workers_.size(); ++w) workers_[w].queue = queues.queues[w];
    predicted_seconds_ = queues.seconds;
}

// ---- what workers say

void Dispatcher::take(const WorkerReport& report) {
    for (const std::string& line : report.log) {
        log::info(cat("worker ", report.worker, ": ", line));
    }
    for (const MetricsLine& line : report.metrics) {
        journal_.wrote(line.adapter, metrics_rows(line.text + "\n"));
    }
    if (report.tokens > 0) journal_.trained(report.tokens, report.round);
    workers_[static_cast<std::size_t>(report.worker)].tokens += static_cast<double>(report.tokens);
    adapters_.reached(std::max(adapters_.round(), report.round));
    const auto at_rung = [&](AdapterId a) {
        return std::find(report.at_rung.begin(), report.at_rung.end(), a) != report.at_rung.end();
    };
    for (const AdapterUpdate& update : report.states) take_state(update, at_rung(update.adapter));
    search_.arrived(report.at_rung);
    note_changes();
    note_saved(report);
    for (const ReturnedAdapter& returned : report.returned) take_returned(returned);
    WorkerView& worker = workers_[static_cast<std::size_t>(report.worker)];
    if (report.places) worker.places = *report.places;
    if (report.stopped) {
        worker.stopped = true;
        if (stop_reason_.empty()) decisions_.stop = stop_reason_ = *report.stopped;
    }
}

/// What its rungs say is the dispatcher's to know.
void Dispatcher::take_state(const AdapterUpdate& update, bool at_rung) {
    AdapterState& state = adapters_[update.adapter].state;
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
    for (const AdapterId a : adapters_.all()) {
        const AdapterState& state = adapters_[a].state;
        const Reported now{is_ended(a), state.rungs.size(), state.promoted};
        if (now.ended) ended.push_back(a);
        if (now == reported_[index(a)]) continue;
        reported_[index(a)] = now;
        decisions_.updates.push_back({a, state});
        if (now.ended) {
            saved_[index(a)] = most_steps;
            leaving_.erase(a);
            move_costs_.ended(a);
        }
        changed = true;
    }
    if (!changed) return;
    search_.judge();
    sweep_.update(ended);
    journal_.trials_ended();
    for (const AdapterId a : ended) {
        const std::string& name = parts_.job.adapter(a).name;
        if (stopping_.erase(name) > 0) inbox_->obeyed(name);
    }
    former_.remove_superseded(saved_);
    note_changes();
}

void Dispatcher::note_saved(const WorkerReport& report) {
    move_costs_.saved(report.saving_seconds);
    if (report.saved.empty()) return;
    for (const AdapterId a : report.saved) {
        saved_[index(a)] = std::max(saved_[index(a)], adapters_[a].state.steps);
    }
    former_.remove_superseded(saved_);
}

// ---- who gets what

bool Dispatcher::is_free(AdapterId adapter) const {
    const AdapterStatus status = adapters_[adapter].state.status;
    return is_unfinished(status) && status != AdapterStatus::parked &&
           owners_[index(adapter)] == nobody;
}

bool Dispatcher::has_work(int worker) const {
    const std::vector<AdapterId> all = adapters_.all();
    return std::any_of(all.begin(), all.end(), [&](AdapterId a) {
        return owners_[index(a)] == worker && !is_ended(a) &&
               adapters_[a].state.status != AdapterStatus::parked;
    });
}

double Dispatcher::work_of(AdapterId adapter) const {
    return adapters_[adapter].tokens_per_step * adapters_.steps_left(adapter);
}

double Dispatcher::work_left(int worker) const {
    double work = 0.0;
    for (const AdapterId a : adapters_.all()) {
        if (owners_[index(a)] == worker && !is_ended(a)) work += work_of(a);
    }
    for (const AdapterId a : workers_[static_cast<std::size_t>(worker)].queue) work += work_of(a);
    return work;
}

/// Its own, as long as that has anything to give; then of the worker with most work, unless that
/// would end before this one.
std::vector<AdapterId>* Dispatcher::queue_for(int worker) {
    const auto has_free = [&](const WorkerView& view) {
        return std::any_of(view.queue.begin(), view.queue.end(),
                           [&](AdapterId a) { return is_free(a); });
    };
    WorkerView& own = workers_[static_cast<std::size_t>(worker)];
    if (has_free(own)) return &own.queue;
    int most = nobody;
    for (int w = 0; w < parts_.workers; ++w) {
        if (!has_free(workers_[static_cast<std::size_t>(w)])) continue;
        if (most == nobody || work_left(w) > work_left(most)) most = w;
    }
    if (most == nobody) return nullptr;
    std::vector<AdapterId>& queue = workers_[static_cast<std::size_t>(most)].queue;
    const auto last =
        std::find_if(queue.rbegin(), queue.rend(), [&](AdapterId a) { return is_free(a); });
    const bool earlier = work_left(worker) + work_of(*last) < work_left(most);
    return earlier || !has_work(worker) ? &queue : nullptr;
}

void Dispatcher::give_to(int worker) {
    WorkerView& view = workers_[static_cast<std::size_t>(worker)];
    const auto free = [&](AdapterId a) { return is_free(a); };
    std::vector<std::string> names;
    while (view.places > 0) {
        std::vector<AdapterId>* queue = queue_for(worker);
        if (queue == nullptr) break;
        const bool own = queue == &view.queue;
        const auto found = own ? std::find_if(queue->begin(), queue->end(), free)
                               : std::find_if(queue->rbegin(), queue->rend(), free).base() - 1;
        const AdapterId adapter = *found;
        queue->erase(found);
        if (!own) {
            log::info(cat("adapter ", parts_.job.adapter(adapter).name, " moves to worker ", worker,
                          ", which has less to do"));
        }
        if (!has_work(worker)) {  // its speed is that of what it does from now on
            view.since = clock_.elapsed();
            view.tokens = 0.0;
        }
        owners_[index(adapter)] = worker;
        decisions_.updates.push_back({adapter, adapters_[adapter].state});
        decisions_.given.push_back({worker, adapter, checkpoints_[index(adapter)]});
        // The worker that it comes from gave it back before it heard of the order.
        if (stopping_.contains(parts_.job.adapter(adapter).name))
            decisions_.ended.push_back(adapter);
        if (!given_) given_ = std::chrono::steady_clock::now();
        --view.places;
        names.push_back(parts_.job.adapter(adapter).name);
    }
    if (!names.empty()) log::info(cat("worker ", worker, " gets ", join(names, ", ")));
}

void Dispatcher::give() {
    if (!stop_reason_.empty()) return;
    for (int w = 0; w < parts_.workers; ++w) give_to(w);
    move_work();
}

/// Of what the worker has been given, at its speed so far; 0 = not known.
double Dispatcher::seconds_left(int worker) const {
    const WorkerView& view = workers_[static_cast<std::size_t>(worker)];
    const double seconds = clock_.elapsed() - view.since;
    return view.tokens > 0 ? work_left(worker) * seconds / view.tokens : 0.0;
}

/// Most work first.
std::vector<AdapterId> Dispatcher::movable(int worker) const {
    std::vector<AdapterId> adapters = adapters_.all();
    std::erase_if(adapters, [&](AdapterId a) {
        return owners_[index(a)] != worker || is_ended(a) ||
               adapters_[a].state.status == AdapterStatus::parked;
    });
    std::stable_sort(adapters.begin(), adapters.end(),
                     [&](AdapterId a, AdapterId b) { return work_of(a) > work_of(b); });
    return adapters;
}

/// From the worker that is expected to end last to one that has nothing, while all queues are
/// empty: every other adapter.
void Dispatcher::move_work() {
    if (!leaving_.empty()) return;
    const auto is_idle = [&](int w) {
        return workers_[static_cast<std::size_t>(w)].places > 0 && !has_work(w);
    };
    int idle = 0;
    while (idle < parts_.workers && !is_idle(idle)) ++idle;
    if (idle == parts_.workers || queue_for(idle) != nullptr) return;
    int last = 0;
    for (int w = 1; w < parts_.workers; ++w) {
        if (seconds_left(w) > seconds_left(last)) last = w;
    }
    const std::vector<AdapterId> adapters = movable(last);
    if (adapters.size() < 2 || !move_costs_.is_worth(seconds_left(last))) return;
    for (std::size_t i = 1; i < adapters.size(); i += 2) {
        leaving_.insert(adapters[i]);
        move_costs_.ordered(adapters[i], clock_.elapsed());
        decisions_.returned.push_back({last, adapters[i]});
        workers_[static_cast<std::size_t>(idle)].queue.push_back(adapters[i]);
        log::info(cat("adapter ", parts_.job.adapter(adapters[i]).name, " moves from worker ", last,
                      " to worker ", idle, ", which has nothing to do"));
    }
}

void Dispatcher::take_returned(const ReturnedAdapter& returned) {
    const AdapterId adapter = returned.adapter;
    owners_[index(adapter)] = nobody;
    checkpoints_[index(adapter)] = returned.checkpoint;
    leaving_.erase(adapter);
    move_costs_.returned(adapter, clock_.elapsed());
    if (returned.checkpoint.empty()) {
        if (stopping_.contains(parts_.job.adapter(adapter).name)) end_free(adapter, "");
        return;
    }
    saved_[index(adapter)] = 0;  // what its old worker has of it leaves with its next checkpoint
    former_.add(returned.checkpoint, adapter, adapters_[adapter].state.steps);
}

// ---- what people want, and the end

void Dispatcher::look_for_orders() {
    if (seconds_since(looked_) < seconds_between_looks) return;
    looked_ = std::chrono::steady_clock::now();
    const Inbox::Orders orders = inbox_->look();
    for (const std::string& name : orders.stops) stop_adapter(name);
    if (orders.additions.empty() || !adding_.empty() || !stop_reason_.empty()) return;
    adding_ = orders.additions.front().path;
    own_.emplace_back().additions = {orders.additions.front()};
}

void Dispatcher::refuse(const InboxFile& file, const std::string& why) {
    inbox_->reject(file, why);
    adding_.clear();
}

/// The job has them now.
void Dispatcher::added(const InboxFile& file) {
    adding_.clear();
    const std::vector<AdapterId> added = adapters_.grow();
    owners_.resize(adapters_.size(), nobody);
    checkpoints_.resize(adapters_.size());
    reported_.resize(adapters_.size());
    saved_.resize(adapters_.size(), 0);
    journal_.begin(added);
    for (const AdapterId a : added) {
        int least = 0;
        for (int w = 1; w < parts_.workers; ++w) {
            if (work_left(w) < work_left(least)) least = w;
        }
        workers_[static_cast<std::size_t>(least)].queue.push_back(a);
    }
    predicted_seconds_ = 0.0;
    decisions_.additions.push_back(file);
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
    if (is_ended(adapter)) return inbox_->obeyed(name);
    stopping_.insert(name);
    // One that has begun goes to a worker first, which exports it (give_to).
    if (is_free(adapter) && !checkpoints_[index(adapter)].empty()) return;
    if (owners_[index(adapter)] == nobody) return end_free(adapter, "");
    decisions_.ended.push_back(adapter);
}

/// One that no worker has.
void Dispatcher::end_free(AdapterId adapter, const std::string& why) {
    AdapterState& state = adapters_[adapter].state;
    state.status = AdapterStatus::stopped;
    state.reason = why;
    log::info(cat("adapter ", parts_.job.adapter(adapter).name, " is stopped at step ", state.steps,
                  why.empty() ? ", as ordered" : ": " + why));
    note_changes();
}

void Dispatcher::look_at_budget() {
    const double hours = parts_.job.sweep ? parts_.job.sweep->budget_hours : 0.0;
    if (hours <= 0 || clock_.elapsed() < hours * hour_seconds) return;
    bool any = false;
    for (const AdapterId a : adapters_.all()) {
        if (!parts_.job.adapter(a).trial || is_ended(a)) continue;
        if (owners_[index(a)] == nobody) end_free(a, budget_text(*parts_.job.sweep));
        any = any || !is_ended(a);
    }
    if (any && !std::exchange(budget_reported_, true)) decisions_.budget_spent = true;
}

bool Dispatcher::all_stopped() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const WorkerView& worker) { return worker.stopped; });
}

void Dispatcher::look_at_end() {
    if (!adapters_.finished() || !adding_.empty()) {
        idle_.reset();
        if (all_stopped()) end(ExitCode::stopped_resume_me);
        return;
    }
    if (!idle_) {
        idle_ = std::chrono::steady_clock::now();
        if (given_) trained_seconds_ = seconds_since(*given_);
        inbox_->let_settle();
        return;
    }
    const double wait = parts_.job.sweep ? parts_.job.sweep->wait_minutes : 0.0;
    if (stop_reason_.empty() && seconds_since(*idle_) < minute_seconds * wait) return;
    end(adapters_.any_failed() ? ExitCode::some_adapters_failed : ExitCode::done);
}

void Dispatcher::end(ExitCode code) {
    const bool stopped = code == ExitCode::stopped_resume_me;
    const bool failed = adapters_.any_failed();
    const std::string leaderboard = SweepRecords::leaderboard(parts_.job, adapters_);
    if (!leaderboard.empty()) log::block(leaderboard);
    if (!stopped) stop_reason_.clear();
    journal_.end(stopped ? "stopped" : "done",
                 stopped ? stop_reason_ : std::string(failed ? "some adapters failed" : ""));
    decisions_.over = code;
    over_ = true;
}

void Dispatcher::serve() {
    parts_.leaders.progress();
    if (!inbox_) return;
    while (const std::optional<std::string> text = parts_.leaders.next_report()) {
        take(worker_report_from_text(*text));
    }
    if (over_) return;
    look_for_orders();
    look_at_budget();
    give();
    look_at_end();
    journal_.beat();
    post();
}

void Dispatcher::post() {
    if (decisions_.empty()) return;
    parts_.leaders.post(to_text(decisions_, parts_.job));
    decisions_.additions.clear();  // worker 0 has had them
    own_.push_back(std::exchange(decisions_, {}));
}

std::optional<Decisions> Dispatcher::next_of_own() {
    if (own_.empty()) return std::nullopt;
    Decisions decisions = std::move(own_.front());
    own_.pop_front();
    return decisions;
}

std::string Dispatcher::makespan_text() const {
    if (trained_seconds_ <= 0 || predicted_seconds_ <= 0) return "";
    return cat("on ", parts_.workers, " workers: predicted ", format_fixed(predicted_seconds_, 1),
               " s, took ", format_fixed(trained_seconds_, 1), " s (",
               format_fixed(trained_seconds_ / predicted_seconds_, 2), " of it)");
}

}  // namespace loratrain

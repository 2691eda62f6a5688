#include "train/services/local_source.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "plan/schedule/evaluations.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

constexpr double seconds_per_hour = 3600.0;
constexpr std::chrono::milliseconds between_looks_for_trials{200};

}  // namespace

// ---- between streams

void LocalSource::begin(int signal, bool set_back) {
    worker_.signal = signal;
    recall_trials();
    if (set_back) save();
    stop_reason_ = reason_to_stop();
    if (!worker_.adapters.finished() && !stop_reason_.empty()) return;
    inbox_.emplace(worker_.parts.job.run.dir);
    worker_.journal.start();
}

bool LocalSource::begin_turn() {
    if (finished() || !stop_reason_.empty()) return false;
    worker_.search.judge();
    return true;
}

/// Nothing is left to train, and nobody has ordered more.
bool LocalSource::finished() {
    if (!worker_.adapters.finished()) return false;
    inbox_->let_settle();
    obey_orders();
    if (worker_.parts.job.sweep) wait_for_trials();
    return worker_.adapters.finished();
}

void LocalSource::after(const std::vector<AdapterId>& trained) {
    worker_.release(worker_.services->checkpoints.take_ended());
    if (worker_.parts.job.sweep) search_trials(trained);
    obey_orders();
    stop_reason_ = reason_to_stop();
    if (stop_reason_.empty() && worker_.services->redeployment.redeploys()) {
        redeploys_ = true;
        stop_reason_ = "the deployment changes";
    }
    const bool due = worker_.services->checkpoints.is_due(worker_.adapters.round());
    if (worker_.adapters.finished() || due || !stop_reason_.empty()) save();
}

void LocalSource::save() {
    worker_.services->checkpoints.save();
    forget_obeyed(stopping_);
}

ExitCode LocalSource::end() {
    if (!redeploys_) worker_.parts.stop.obeyed();
    const bool stopped = !worker_.adapters.finished();
    const bool failed = worker_.adapters.any_failed();
    ExitCode code = stopped ? ExitCode::stopped_resume_me : ExitCode::done;
    if (!stopped && failed) code = ExitCode::some_adapters_failed;
    const std::string leaderboard = SweepRecords::leaderboard(worker_.parts.job, worker_.adapters);
    if (!leaderboard.empty()) log::block(leaderboard);
    const std::string failure = failed ? "some adapters failed" : "";
    worker_.journal.end(stopped ? "stopped" : "done", stopped ? stop_reason_ : failure);
    worker_.ranks.order(Finish{code, redeploys_});
    worker_.ranks.finish();
    return code;
}

// ---- orders of people

/// Those of a sweep change what its trials are judged beside.
bool LocalSource::takes_orders_in_stream() const {
    return !worker_.parts.job.sweep && worker_.changes_in_stream();
}

/// Looks for orders where none are known yet.
bool LocalSource::orders_wait() {
    if (!inbox_) return false;
    if (orders_.additions.empty() && orders_.stops.empty()) {
        orders_ = inbox_->look();
        std::erase_if(orders_.additions, [&](const InboxFile& file) {
            return worker_.services->growth.is_asked_about(file);
        });
        std::erase_if(orders_.stops,
                      [&](const std::string& name) { return stopping_.contains(name); });
    }
    return !orders_.additions.empty() || !orders_.stops.empty();
}

void LocalSource::look_for_orders() {
    GrowthService& growth = worker_.services->growth;
    growth.window_passes();
    if (takes_orders_in_stream() && orders_wait()) growth.ask(orders_.additions);
}

bool LocalSource::needs_drain(std::int32_t round) {
    return orders_need_drain(round) || budget_spent() || !reason_to_stop().empty();
}

/// One that waits and has begun is evaluated and exported as it stops, which takes it back into
/// memory.
bool LocalSource::orders_need_drain(std::int32_t round) {
    if (!orders_wait()) return false;
    if (!takes_orders_in_stream() || round >= worker_.fixed_end) return true;
    if (orders_.stops.empty()) return false;
    std::set<AdapterId> staying;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        if (worker_.adapters.trains_beyond(a, round)) staying.insert(a);
    }
    for (const AdapterId a : worker_.adapters.all()) {
        const std::string& name = worker_.job(a).name;
        const auto& stops = orders_.stops;
        if (std::find(stops.begin(), stops.end(), name) == stops.end()) continue;
        const AdapterState& state = worker_.state(a);
        if (state.status == AdapterStatus::waiting && state.steps > 0) return true;
        staying.erase(a);
    }
    return staying.empty();
}

bool LocalSource::change(const Progress& planned, StreamChange& change) {
    for (const std::string& name : std::exchange(orders_, {}).stops) {
        if (const std::optional<AdapterId> adapter = take_stop(name)) {
            stop_in_stream(*adapter, planned, change);
        }
    }
    return true;
}

void LocalSource::stop_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change) {
    AdapterRun& run = worker_.adapters[adapter];
    if (run.state.status == AdapterStatus::waiting) return stop_adapter(worker_, adapter);
    const std::int32_t steps = planned.steps[index(adapter)];
    const bool ends = planned.stopped[index(adapter)] || steps >= worker_.total_steps(adapter);
    if (run.state.status != AdapterStatus::running || ends) return;
    run.stream.leave_at(steps);
    change.ended.push_back(adapter);
    if (!all_are_evaluated(worker_.parts.job, planned.round) && run.state.steps < steps &&
        worker_.adapters.has_eval_samples(adapter)) {
        worker_.journal.await_evaluation(adapter, steps);
    }
}

void LocalSource::obey_orders() {
    worker_.services->growth.grow();
    if (!orders_wait()) return;
    for (const std::string& name : orders_.stops) {
        if (const std::optional<AdapterId> adapter = take_stop(name))
            stop_adapter(worker_, *adapter);
    }
    for (const InboxFile& file : orders_.additions) worker_.services->growth.take_now(file);
    orders_ = {};
}

/// That is to stop; where the run has none of that name, the order is refused.
std::optional<AdapterId> LocalSource::take_stop(const std::string& name) {
    const auto& adapters = worker_.parts.job.adapters;
    const auto found = std::find_if(adapters.begin(), adapters.end(),
                                    [&](const AdapterJob& a) { return a.name == name; });
    if (found == adapters.end()) {
        inbox_->reject_stop(name, "this run has no such adapter");
        return {};
    }
    // A restart from an older checkpoint has to find the order again.
    stopping_.insert(name);
    return static_cast<AdapterId>(found - adapters.begin());
}

/// Orders to stop that a checkpoint has.
void LocalSource::forget_obeyed(const std::set<std::string>& names) {
    for (const std::string& name : std::set<std::string>(names)) {
        inbox_->obeyed(name);
        stopping_.erase(name);
    }
}

void LocalSource::on_checkpoint(const StateAtRound& /*saved*/, double /*seconds*/) {
    forget_obeyed(std::exchange(stops_in_checkpoint_, {}));
}

void LocalSource::refuse(const InboxFile& file, const std::string& why) {
    inbox_->reject(file, why);
}

void LocalSource::added(const InboxFile& file, const JobTail& tail) {
    const std::vector<AdapterId> added = worker_.adapters.grow();
    worker_.journal.begin(added);
    log::info(cat("took ", added.size(),
                  added.size() == 1 ? " more adapter from " : " more adapters from ", file.path));
    warn_of_additions(worker_.parts, file, tail);
}

// ---- trials of a sweep

std::vector<AdapterId> LocalSource::ended_trials() const {
    std::vector<AdapterId> ended = worker_.adapters.all();
    std::erase_if(
        ended, [this](AdapterId a) { return !is_ended_trial(worker_.job(a), worker_.state(a)); });
    return ended;
}

/// What starts of the run before this one have come to since the checkpoint.
void LocalSource::recall_trials() {
    if (!worker_.parts.job.sweep) return;
    worker_.sweep.recall();
    worker_.search.judge();
    release_trials();
}

/// Judges those that are at rungs, and whoever can be judged now that others have ended.
void LocalSource::search_trials(const std::vector<AdapterId>& trained) {
    const std::vector<AdapterId> arrived = worker_.search.at_rung(trained);
    worker_.services->rungs.evaluate(arrived);
    worker_.search.arrived(arrived);
    if (budget_spent()) end_trials_by_budget(worker_);
    worker_.journal.flush();
    const std::vector<AdapterId> ended = ended_trials();
    for (const AdapterId a : ended) {
        const AdapterStatus status = worker_.state(a).status;
        const bool early = status == AdapterStatus::pruned || status == AdapterStatus::stopped;
        if (early && worker_.holds(a) && worker_.sweep.is_wanted(a)) {
            worker_.services->exports.write_now(a);
        }
    }
    const bool unrecorded = std::any_of(
        ended.begin(), ended.end(), [this](AdapterId a) { return !worker_.sweep.has_recorded(a); });
    if (unrecorded || !arrived.empty()) on_ends(ended);
    release_trials();
}

void LocalSource::on_ends(const std::vector<AdapterId>& ended) {
    if (!worker_.parts.job.sweep) return;
    worker_.sweep.update(ended);
    worker_.journal.trials_ended();
}

/// Trials that have ended, and are exported or not wanted.
void LocalSource::look_for_ends(bool rungs_changed) {
    if (!worker_.parts.job.sweep) return;
    std::vector<AdapterId> ended = worker_.adapters.all();
    std::erase_if(ended, [this](AdapterId a) {
        const bool over = is_ended_trial(worker_.job(a), worker_.state(a));
        return !over || worker_.sweep.has_recorded(a) ||
               worker_.services->exports.waits_for_files(a);
    });
    if (ended.empty() && !rungs_changed) return;
    worker_.journal.flush();
    on_ends(ended);
}

bool LocalSource::budget_spent() const {
    const auto& sweep = worker_.parts.job.sweep;
    const double hours = sweep ? sweep->budget_hours : 0.0;
    if (hours <= 0 || worker_.clock.elapsed() < hours * seconds_per_hour) return false;
    const std::vector<AdapterId> all = worker_.adapters.all();
    return std::any_of(all.begin(), all.end(), [this](AdapterId a) {
        return worker_.job(a).trial && is_unfinished(worker_.state(a).status);
    });
}

/// Memory of trials that have ended; no checkpoint needs it.
void LocalSource::release_trials() {
    worker_.release(ended_trials());
}

/// Nothing is left to train: waits for more through the inbox.
void LocalSource::wait_for_trials() {
    const double seconds = 60.0 * worker_.parts.job.sweep->wait_minutes;
    const auto start = std::chrono::steady_clock::now();
    if (seconds > 0) log::info("waiting for more trials through the inbox");
    while (worker_.adapters.finished() && seconds_since(start) < seconds &&
           reason_to_stop().empty()) {
        activity::begin(activity::Task::plan);
        std::this_thread::sleep_for(between_looks_for_trials);
        worker_.ranks.progress();
        worker_.journal.beat();
        obey_orders();
    }
}

}  // namespace loratrain

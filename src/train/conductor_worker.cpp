#include <algorithm>
#include <chrono>
#include <thread>

#include "base/activity.h"
#include "base/log.h"
#include "plan/schedule/admission.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/conductor.h"
#include "train/job_warnings.h"

/// The leader of a worker: it trains what the desk gives it (train/workers/desk.h).

namespace loratrain {

namespace {

constexpr std::chrono::milliseconds between_looks_at_desk{1};

AdapterClaim claim_of(const AdapterTable& adapters, AdapterId adapter) {
    const AdapterState& state = adapters[adapter].state;
    const bool trains = is_unfinished(state.status) && state.status != AdapterStatus::parked;
    return {trains, state.steps > 0, adapters.steps_left(adapter)};
}

}  // namespace

void Conductor::record_failure(const std::string& why) {
    if (parts_.desk != nullptr) return parts_.desk->record_failure(why);
    journal_.end("failed", why);
}

/// The desk records those that have ended.
RunState Conductor::state() const {
    RunState run = adapters_.state(clock_.elapsed());
    if (parts_.desk == nullptr) return run;
    for (AdapterState& state : run.adapters) {
        if (is_unfinished(state.status)) continue;
        state = {};
        state.status = AdapterStatus::waiting;
    }
    return run;
}

ExitCode Conductor::work() {
    for (obey_desk(); !over_; obey_desk()) {
        ask_for_adapters(adapters_);
        train_given();
        const std::string why = resting_ ? "" : reason_to_stop();
        if (!why.empty()) stop_working(why);
    }
    log_planning();
    parts_.desk->send();
    if (parts_.keeps_records) parts_.stop.obeyed();
    post(Finish{*over_});
    channel_.finish();
    return *over_;
}

void Conductor::train_given() {
    if (resting_) return rest();
    admit_adapters();
    refer_newcomers();
    evaluate_newcomers();
    const std::vector<AdapterId> running = adapters_.running();
    if (running.empty()) return rest();
    const std::vector<AdapterId> at_rung = search_.at_rung(running);
    if (!at_rung.empty()) {  // by a start that was killed there
        evaluated_.clear();
        return report_trained(at_rung);
    }
    const std::vector<AdapterId> trained = train_stream();
    end_adapters(trained);
    report_trained(trained);
    if (checkpoint_due_at(adapters_.round())) save_and_tell();
}

/// Nothing is there to train.
void Conductor::rest() {
    activity::begin(activity::Task::plan);
    parts_.desk->send();
    std::this_thread::sleep_for(between_looks_at_desk);
    channel_.progress();
}

void Conductor::ask_for_adapters(const AdapterTable& table) {
    const int now = resting_ ? 0 : places(table);
    if (now == places_) return;
    places_ = now;
    parts_.desk->tell_places(now);
    parts_.desk->send();
}

/// Those that could train beside the ones that it has, and one more; none while one waits.
int Conductor::places(const AdapterTable& table) const {
    std::vector<AdapterClaim> claims = table.claims();
    const auto had = std::count_if(claims.begin(), claims.end(),
                                   [](const AdapterClaim& claim) { return claim.unfinished; });
    const auto admitted = std::ssize(admit(parts_.job, parts_.plan, claims));
    if (admitted < had) return 0;
    for (const AdapterId a : adapters_.all()) {
        if (!has(a)) claims[index(a)] = claim_of(adapters_, a);
    }
    return static_cast<int>(std::ssize(admit(parts_.job, parts_.plan, claims)) - admitted) + 1;
}

/// Those at rungs wait for the desk's verdict.
void Conductor::report_trained(const std::vector<AdapterId>& trained) {
    tell_parked();
    const std::vector<AdapterId> arrived = search_.at_rung(trained);
    evaluate_at_rungs(arrived);
    journal_.flush();
    for (const AdapterId a : arrived) {
        adapters_[a].state.status = AdapterStatus::parked;
        parts_.desk->tell(a, adapters_[a].state, true);
    }
    tell_ends();
}

/// All that has ended, with an empty pipeline.
void Conductor::tell_ends() {
    std::vector<AdapterId> ended = adapters_.all();
    std::erase_if(ended, [this](AdapterId a) {
        return !has(a) || is_unfinished(adapters_[a].state.status) || told_.contains(a);
    });
    for (const AdapterId a : ended) {
        const AdapterState& state = adapters_[a].state;
        const bool by_desk = state.status == AdapterStatus::pruned || !state.reason.empty();
        if (is_held(a) && by_desk && sweep_.is_wanted(a)) export_adapter(a);
    }
    tell_ends(ended);
    release(adapters_held());
}

/// What they leave is in the run directory.
void Conductor::tell_ends(const std::vector<AdapterId>& ended) {
    for (const AdapterId a : ended) {
        if (told_.insert(a).second) parts_.desk->tell(a, adapters_[a].state);
    }
    parts_.desk->send();
}

void Conductor::save_and_tell() {
    const auto start = std::chrono::steady_clock::now();
    save();
    const double seconds = seconds_since(start);
    std::vector<AdapterId> saved;
    for (const AdapterId a : adapters_.all()) {
        const AdapterState& state = adapters_[a].state;
        if (!has(a) || !is_unfinished(state.status)) continue;
        parts_.desk->tell(a, state);
        saved.push_back(a);
    }
    parts_.desk->tell_saved(saved, seconds);
    parts_.desk->send();
}

/// What the checkpoint of the stream has, of those that have neither ended since nor come to rungs,
/// where the desk judges them by what it was told then.
void Conductor::tell_saved(const StateAtRound& saved, double seconds) {
    const RunState then = saved.state(state());
    std::vector<AdapterId> adapters;
    for (const AdapterId a : adapters_.all()) {
        const AdapterStatus status = adapters_[a].state.status;
        const bool saves = has(a) && is_unfinished(status) && status != AdapterStatus::parked;
        if (!saves || is_untouched(then.adapters[index(a)])) continue;  // it may have come since
        parts_.desk->tell(a, then.adapters[index(a)]);
        adapters.push_back(a);
    }
    parts_.desk->tell_saved(adapters, seconds);
    parts_.desk->send();
}

void Conductor::stop_working(const std::string& why) {
    save_and_tell();
    resting_ = true;
    parts_.desk->tell_stopped(why);
    parts_.desk->send();
}

// ---- what the desk says

void Conductor::obey_desk() {
    parts_.desk->look();
    while (const std::optional<DeskOrders> orders = parts_.desk->next()) obey(*orders);
}

void Conductor::obey(const DeskOrders& orders) {
    if (orders.elapsed_seconds >= 0) {
        clock_.continue_from(orders.elapsed_seconds);
        adapters_.reached(std::max(adapters_.round(), orders.round));
    }
    for (const InboxFile& file : orders.additions) grow_by(file);
    for (const AdapterNews& news : orders.news) take_news(news);
    for (const GivenAdapter& given : orders.given) {
        if (given.worker == parts_.desk->worker()) take_over(given);
    }
    give_back(orders.returned);
    for (const AdapterId a : orders.ended) {
        if (has(a)) stop_adapter(a);
    }
    if (orders.budget_spent) end_by_budget();
    if (!orders.stop.empty()) stop_ordered_ = orders.stop;
    over_ = orders.over;
    tell_ends();
}

/// Of its own the verdicts alone are news.
void Conductor::take_news(const AdapterNews& news) {
    AdapterRow& row = adapters_[news.adapter];
    if (!row.held) {
        row.state = news.state;
        if (row.state.status == AdapterStatus::running) row.state.status = AdapterStatus::waiting;
        return;
    }
    if (row.state.status != AdapterStatus::parked) return;
    row.state.rungs = news.state.rungs;
    row.state.promoted = news.state.promoted;
    row.state.status = news.state.status;
    row.state.reason = news.state.reason;
}

void Conductor::take_over(const GivenAdapter& given) {
    AdapterRow& row = adapters_[given.adapter];
    row.held = true;
    --places_;
    adapters_.reached(std::max(adapters_.round(), row.state.steps));
    journal_.take_over(given.adapter);
    if (given.checkpoint.empty()) return;
    post(LoadAdapter{given.adapter, given.checkpoint});
    performer_.load(given.adapter, given.checkpoint);
}

/// So that another worker goes on with them, those that have begun from a checkpoint of them alone.
void Conductor::give_back(const std::vector<ReturnedAdapter>& returned) {
    std::vector<AdapterId> mine;
    std::vector<AdapterId> begun;
    for (const ReturnedAdapter& r : returned) {
        const AdapterState& state = adapters_[r.adapter].state;
        const bool asked = r.worker == parts_.desk->worker() && has(r.adapter);
        if (!asked || !is_unfinished(state.status)) continue;
        mine.push_back(r.adapter);
        if (state.steps > 0) begun.push_back(r.adapter);
    }
    const std::string stored = store_for_others(begun);
    for (const AdapterId a : mine) {
        AdapterRow& row = adapters_[a];
        row.held = false;
        row.state.status = AdapterStatus::waiting;
        if (parts_.run.stage().bank().residence(a) != Residence::absent) {
            post(ReleaseAdapter{a});
            performer_.release(a);
        }
        const bool has_begun = row.state.steps > 0;
        parts_.desk->tell_returned({parts_.desk->worker(), a, has_begun ? stored : ""});
    }
    if (!mine.empty()) parts_.desk->send();
}

/// Its directory; "" without any.
std::string Conductor::store_for_others(const std::vector<AdapterId>& adapters) {
    if (adapters.empty()) return "";
    journal_.flush();  // who goes on has to find metrics of all steps before
    RunState run = state();
    for (const AdapterId a : adapters_.all()) {
        if (std::find(adapters.begin(), adapters.end(), a) != adapters.end()) {
            parts_.desk->tell(a, run.adapters[index(a)]);
        } else {
            run.adapters[index(a)] = {};
            run.adapters[index(a)].status = AdapterStatus::waiting;
        }
    }
    const std::string root = move_checkpoint_root(parts_.checkpoints, ++moves_);
    post(StoreAdapters{adapters});
    performer_.store(adapters, run, root);
    return cat(root, "/", run.round);
}

void Conductor::grow_by(const InboxFile& file) {
    const JobTail tail{parts_.job.adapters.size(), parts_.job.datasets.size()};
    post(AddAdapters{file});
    try {
        performer_.add(file, [&] { parts_.desk->accept(file); });
    } catch (const InputError& error) {
        return parts_.desk->refuse(file, error.what());
    }
    for (const AdapterId a : adapters_.grow()) adapters_[a].held = false;
    parts_.desk->added(file);
    if (!parts_.keeps_records) return;
    for (const std::string& text :
         job_warnings(parts_.job, parts_.plan, parts_.files, parts_.base, tail)) {
        log::warn(cat(file.path, ": ", text));
    }
}

/// Orders have come that need an empty pipeline.
bool Conductor::desk_wants_drain() const {
    const bool in_stream = changes_in_stream();
    const auto is_mine = [this](const auto& entry) {
        return entry.worker == parts_.desk->worker();
    };
    return parts_.desk->any([&](const DeskOrders& orders) {
        const bool more =
            std::any_of(orders.given.begin(), orders.given.end(), [&](const GivenAdapter& given) {
                return is_mine(given) && (in_stream ? !given.checkpoint.empty() : places_ > 1);
            });
        const bool fewer = std::any_of(orders.returned.begin(), orders.returned.end(), is_mine);
        const bool ends = std::any_of(orders.ended.begin(), orders.ended.end(),
                                      [this](AdapterId a) { return has(a); });
        return more || fewer || ends || (!in_stream && has_verdicts(orders)) ||
               !orders.additions.empty() || orders.budget_spent || !orders.stop.empty() ||
               orders.over;
    });
}

/// On trials that it has parked.
bool Conductor::has_verdicts(const DeskOrders& orders) const {
    return std::any_of(orders.news.begin(), orders.news.end(), [this](const AdapterNews& news) {
        return has(news.adapter) && adapters_[news.adapter].state.status == AdapterStatus::parked &&
               news.state.status != AdapterStatus::parked;
    });
}

}  // namespace loratrain

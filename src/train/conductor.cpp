#include "train/conductor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "io/files.h"
#include "plan/schedule/evaluations.h"
#include "train/records/exports.h"

namespace loratrain {

Conductor::Conductor(const TrainerParts& parts, Performer& performer, DirectiveChannel& channel)
    : parts_(parts),
      performer_(performer),
      channel_(channel),
      adapters_(parts.job, parts.plan, parts.datasets),
      search_(parts.job, adapters_),
      sweep_(parts.job, adapters_),
      journal_(parts.job, parts.plan, adapters_, clock_, parts.mpi.size(), parts.view),
      stream_(parts, adapters_, performer, channel, journal_),
      last_checkpoint_(std::chrono::steady_clock::now()) {
    if (parts.sampler != nullptr) journal_.sample_with(*parts.sampler);
    performer.ask_for_posted([&channel](int rank) { return channel.has_reached(rank); });
    if (parts.desk == nullptr) return;
    journal_.report_to(parts.desk);
    for (const AdapterId a : adapters_.all()) adapters_[a].held = false;
    adapters_.admit({});
}

void Conductor::restore(const RunState& state, bool set_back) {
    adapters_.restore(state);
    clock_.continue_from(state.elapsed_seconds);
    set_back_ = set_back;
}

ExitCode Conductor::run(int signal) {
    signal_ = signal;
    if (parts_.desk != nullptr) return work();
    recall_trials();
    if (set_back_) save();
    stop_reason_ = reason_to_stop();
    if (adapters_.finished() || stop_reason_.empty()) {
        inbox_.emplace(parts_.job.run.dir);
        journal_.start();
    }
    while (!finished() && stop_reason_.empty()) train_and_settle();
    if (!goes_on_) parts_.stop.obeyed();
    return end();
}

void Conductor::train_and_settle() {
    search_.judge();
    admit_adapters();
    refer_newcomers();
    evaluate_newcomers();
    std::vector<AdapterId> trained;
    if (!adapters_.running().empty()) trained = train_stream();
    end_adapters(trained);
    release(std::exchange(saved_ended_, {}));
    if (parts_.job.sweep) search_trials(trained);
    obey_orders();
    stop_reason_ = reason_to_stop();
    if (stop_reason_.empty() && redeploys()) {
        goes_on_ = true;
        stop_reason_ = "the deployment changes";
    }
    const bool due = checkpoint_due_at(adapters_.round());
    if (adapters_.finished() || due || !stop_reason_.empty()) save();
}

void Conductor::log_planning() const {
    const PlanningRecord& planning = stream_.planning();
    if (planning.windows == 0) return;
    log::info(cat("planned ", planning.windows, planning.windows == 1 ? " window" : " windows",
                  " of ", planning.streams, planning.streams == 1 ? " stream" : " streams", " in ",
                  format_fixed(planning.seconds, 2), " s, ",
                  format_fixed(planning.waited_seconds, 2), " s of it waited for"));
    const std::string fillings = to_text(planning.fillings);
    if (!fillings.empty()) log::info("packed " + fillings);
    if (parts_.desk != nullptr && makespan().compared()) {
        log::info("training " + makespan().text());
    }
}

ExitCode Conductor::end() {
    log_planning();
    const bool stopped = !adapters_.finished();
    const bool failed = adapters_.any_failed();
    ExitCode code = stopped ? ExitCode::stopped_resume_me : ExitCode::done;
    if (!stopped && failed) code = ExitCode::some_adapters_failed;
    const std::string leaderboard = SweepRecords::leaderboard(parts_.job, adapters_);
    if (!leaderboard.empty()) log::block(leaderboard);
    const std::string failure = failed ? "some adapters failed" : "";
    journal_.end(stopped ? "stopped" : "done", stopped ? stop_reason_ : failure);
    post(Finish{code, goes_on_});
    channel_.finish();
    return code;
}

// ---- one stream of windows

/// Returns who trained in it.
std::vector<AdapterId> Conductor::train_stream() {
    saves_in_stream_ = saves_in_stream();
    fixed_end_ = adapters_.round() + rounds_to_event();
    exported_.clear();
    written_.clear();
    stepped_.clear();
    parked_.clear();
    evaluated_.clear();
    begun_.clear();
    last_steps_.clear();
    for (const AdapterId a : adapters_.running()) {
        begun_[a] = {adapters_.round(), adapters_[a].state.steps};
    }
    foresee_end(adapters_.round());
    adapters_.reached(stream_.run(
        {[this](const BatchResult& result) { on_batch(result); },
         [this](const EvalResult& result) { on_evaluation(result); },
         [this](std::int32_t round) { return drain_wanted(round); },
         [this](const Progress& planned) { return change_stream(planned); },
         [this](const Progress& planned) { return last_round(planned); },
         [this](const Progress& planned) { return most_rounds(planned); },
         [this](const Progress& planned) { return deciding(planned); },
         [this](std::int32_t round) { return awaits_evaluations(round); },
         [this](std::int32_t round) { return checkpoint_due_at(round) && can_save_at(round); },
         [this](std::int32_t round) { return begin_checkpoint(round); },
         [this](const PartKey& key, AdapterParts::ByRank values) {
             store_part(key, std::move(values));
         },
         [this](const PartKey& key, AdapterParts::ByRank values) {
             store_kept({key.adapter, key.step}, std::move(values));
         },
         [this] { go_on_saving(); },
         [this](const std::vector<AdapterId>& stepped) { return choose_exports(stepped); },
         [this] { look_for_additions(); },
         [this] { return waits_to_grow(); },
         [this] { return grow(); },
         [this](const AdditionsVerdict& verdict) { take_verdict(verdict); },
         [this] { return awaits_verdicts(); },
         [this](AdapterId adapter, AdapterParts::ByRank values) {
             // Who waits for DONE reads metrics then.
             const bool files_are_awaited = parts_.job.sweep || parts_.desk != nullptr;
             if (files_are_awaited) journal_.flush();
             activity::begin(activity::Task::export_adapter, number(adapter));
             values[0] = performer_.own_parameters(adapter);
             const AdapterState& state = adapters_[adapter].state;
             if (is_best(adapter, state.steps)) store_kept({adapter, state.steps}, values);
             if (!files_are_awaited) return export_in_background(adapter, std::move(values));
             write_export(parts_.job, parts_.plan.model, state, adapter,
                          performer_.join(adapter, values));
             written_.insert(adapter);
             note_ends({adapter});
         }}));
    for (const AdapterId a : adapters_.running()) settle(a);
    finish_exports();
    write_bests(true);
    finish_saving();
    write_bests(true);
    if (foreseen_) foreseen_->pays.wait();  // orders may change the job
    std::vector<AdapterId> trained;
    for (const auto& [adapter, begin] : begun_) trained.push_back(adapter);
    return trained;
}

/// Whether an adapter that ends makes room for one that cannot come while others train.
bool Conductor::ends_need_drain() const {
    if (search_.active() && !changes_in_stream()) return true;
    return adapters_.any_waiting() && !changes_in_stream();
}

/// Rounds until something is known to need an empty pipeline, whoever comes and goes.
std::int32_t Conductor::rounds_to_event() const {
    const std::int32_t round = adapters_.round();
    std::int32_t rounds = std::numeric_limits<std::int32_t>::max() - round;
    const int save_every = saves_in_stream_ ? 0 : parts_.job.checkpoint.every_steps;
    if (save_every > 0) rounds = save_every - round % save_every;
    rounds = std::min(rounds, parts_.stop.rounds_left(round).value_or(rounds));
    if (ends_need_drain()) {
        for (const AdapterId a : adapters_.running()) {
            rounds = std::min(rounds, adapters_.steps_to_stop(a));
        }
    }
    return std::max(1, rounds);
}

/// Where the last of those that train ends; later while somebody waits who may take a place then.
std::int32_t Conductor::last_round(const Progress& planned) const {
    std::int32_t most = 0;
    for (const AdapterId a : adapters_.all()) {
        if (planned.stopped[index(a)]) continue;
        const std::int32_t total = parts_.plan.adapters[index(a)].total_steps;
        most = std::max(most, total - planned.steps[index(a)]);
    }
    const bool any_may_come = adapters_.any_waiting() || search_.active();
    if (any_may_come && !ends_need_drain()) ++most;
    const std::int32_t end = std::min(fixed_end_, planned.round + most);
    return foreseen_ ? std::min(end, foreseen_->round + 1) : end;
}

/// Of a window, so that one begins where a checkpoint is due, a place becomes free, an end or a
/// trial is judged, or states that are evaluated are kept or awaited.
std::int32_t Conductor::most_rounds(const Progress& planned) const {
    std::int32_t most = std::numeric_limits<std::int32_t>::max();
    const EvalJob& eval = parts_.job.eval;
    const bool awaits = eval.keep_best || eval.early_stopping_patience > 0;
    for (const int every : {parts_.job.checkpoint.every_steps, awaits ? eval.every_steps : 0}) {
        if (every > 0) most = std::min(most, every - planned.round % every);
    }
    if (foreseen_) most = std::min(most, std::max(1, foreseen_->round - planned.round));
    if (!adapters_.any_waiting() && !search_.active()) return most;
    for (const AdapterId a : adapters_.all()) {
        if (planned.stopped[index(a)]) continue;
        const std::int32_t total = parts_.plan.adapters[index(a)].total_steps;
        for (const std::int32_t stop : {total, adapters_.next_stop(a)}) {
            const std::int32_t left = stop - planned.steps[index(a)];
            if (left > 0) most = std::min(most, left);
        }
    }
    return most;
}

/// Before a window that begins with the round.
bool Conductor::drain_wanted(std::int32_t round) {
    if (parts_.desk != nullptr && desk_wants_drain()) return true;
    return orders_need_drain(round) || must_give_up_any() || budget_spent() ||
           evaluations_need_drain(round) || rungs_need_drain(round) || texts_are_due(round) ||
           (checkpoint_due_at(round) && !can_save_at(round)) || !reason_to_stop().empty() ||
           !goes_on_behind(round);
}

void Conductor::on_batch(const BatchResult& result) {
    const BatchPlan& batch = result.batch;
    AdapterState& adapter = adapters_[batch.adapter].state;
    const double loss = batch.denominator > 0.0 ? result.loss_sum / batch.denominator : 0.0;
    const bool finite = std::isfinite(result.grad_sumsq);
    take_step(batch.step + 1, loss, finite, adapter);
    if (!finite) {
        log::warn(cat("adapter ", parts_.job.adapter(batch.adapter).name, ": gradient of step ",
                      adapter.steps, " is not finite; its update is skipped, the others go on"));
    }
    if (saving_) saving_->state.note(batch.adapter, adapter, clock_.elapsed());
    if (is_evaluated_behind(batch)) journal_.await_evaluation(batch.adapter, batch.step + 1);
    journal_.batch_done(result);
    note_evaluations();
}

void Conductor::on_evaluation(const EvalResult& result) {
    if (result.training) return journal_.told_of_step(result);
    evaluations_.push_back(result);
    note_evaluations();
}

/// Those behind batches that are known to have ended.
void Conductor::note_evaluations() {
    std::erase_if(evaluations_, [this](const EvalResult& result) {
        if (adapters_[result.adapter].state.steps < result.step) return false;
        note_evaluation_of(result);
        const bool counts = result.step > 0 && !is_at_rung(result.adapter, result.step);
        if (counts) judge_evaluation(result.adapter, result.step);
        evaluated_[result.adapter] = result.step;
        if (!is_best(result.adapter, result.step)) kept_.erase({result.adapter, result.step});
        const bool begins_behind =
            saving_ && begun_.at(result.adapter).round == saving_->state.round();
        if (saving_ && !(result.step == 0 && begins_behind)) {
            const AdapterState& now = adapters_[result.adapter].state;
            saving_->state.note_evaluation(result.adapter, result.step, now);
        }
        return true;
    });
    write_bests(false);
}

/// Of those whose last step is taken everywhere, the ones whose results have come and are good.
std::vector<AdapterId> Conductor::choose_exports(const std::vector<AdapterId>& stepped) {
    stepped_ = {stepped.begin(), stepped.end()};
    std::vector<AdapterId> ended;
    for (const AdapterId a : stepped) {
        const bool pruned = adapters_[a].state.status == AdapterStatus::pruned;
        if (exported_.contains(a) || steps_left(a) > 0 || !(pruned || is_evaluated(a))) continue;
        if (adapters_[a].state.status == AdapterStatus::running) settle(a);
        if (is_complete(adapters_[a].state.status)) ended.push_back(a);
    }
    std::erase_if(ended, [this](AdapterId a) { return !sweep_.is_wanted(a); });
    exported_.insert(ended.begin(), ended.end());
    if (parts_.desk != nullptr) {
        tell_ends_in_stream();
    } else if (parts_.job.sweep) {
        record_trials(false);
    }
    return ended;
}

/// By the stream itself (ScheduleStream).
bool Conductor::is_evaluated_behind(const BatchPlan& batch) const {
    const bool regular = all_are_evaluated(parts_.job, batch.round + 1);
    const bool at_rung = is_at_rung(batch.adapter, batch.step + 1);
    return (regular || batch.last_of_adapter || at_rung) &&
           has_eval_samples(parts_.job, parts_.datasets, batch.adapter);
}

/// After its last step.
bool Conductor::is_evaluated(AdapterId adapter) const {
    if (!has_eval_samples(parts_.job, parts_.datasets, adapter)) return true;
    const auto evaluated = evaluated_.find(adapter);
    return evaluated != evaluated_.end() && evaluated->second == adapters_[adapter].state.steps;
}

bool Conductor::must_give_up_any() const {
    const std::vector<AdapterId> running = adapters_.running();
    return std::any_of(running.begin(), running.end(), [this](AdapterId a) {
        return adapters_[a].state.bad_steps_in_row >= bad_steps_allowed;
    });
}

/// What its last batch has made of an adapter that trains.
void Conductor::settle(AdapterId id) {
    AdapterState& adapter = adapters_[id].state;
    const std::int32_t total_steps = parts_.plan.adapters[index(id)].total_steps;
    const std::string failure = failure_reason(adapter, total_steps);
    const std::string& name = parts_.job.adapter(id).name;
    if (!failure.empty()) {
        adapter.status = AdapterStatus::failed;
        write_text_atomic(parts_.job.run.dir + "/adapters/" + name + "/FAILED", failure + "\n");
        log::warn(cat("adapter ", name, " FAILED: ", failure));
    } else if (adapter.steps >= total_steps) {
        adapter.status = AdapterStatus::done;
    } else if (last_steps_.contains(id) && steps_left(id) == 0) {
        adapter.status = AdapterStatus::stopped;
        log::info(cat("adapter ", name, " is stopped at step ", adapter.steps, ", as ordered"));
    }
}

/// Those that it may take.
std::int32_t Conductor::steps_left(AdapterId adapter) const {
    const auto last = last_steps_.find(adapter);
    if (last == last_steps_.end()) return adapters_.steps_left(adapter);
    return last->second - adapters_[adapter].state.steps;
}

}  // namespace loratrain

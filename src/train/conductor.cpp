#include "train/conductor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "io/files.h"
#include "io/run_files/generations_file.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"
#include "train/orders/stop_request.h"
#include "train/records/exports.h"
#include "train/records/kept_references.h"

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
         [this](std::int32_t round) { return checkpoint_due_at(round) && can_save_at(round); },
         [this](std::int32_t round) { return begin_checkpoint(round); },
         [this](const PartKey& key, AdapterParts::ByRank values) {
             store_part(key, std::move(values));
         },
         [this](const PartKey& key, AdapterParts::ByRank values) {
             store_kept({key.adapter, key.step}, {std::move(values), {}});
         },
         [this] { go_on_saving(); },
         [this](const std::vector<AdapterId>& stepped) { return choose_exports(stepped); },
         [this] { look_for_additions(); }, [this] { return waits_to_grow(); },
         [this] { return grow(); },
         [this](const AdditionsVerdict& verdict) { take_verdict(verdict); },
         [this] { return awaits_verdicts(); },
         [this](AdapterId adapter, const AdapterParts::ByRank& others) {
             // Who waits for DONE reads metrics then.
             if (parts_.job.sweep || parts_.desk != nullptr) journal_.flush();
             const AdapterState& state = adapters_[adapter].state;
             std::vector<NamedTensor> tensors = performer_.join(adapter, others);
             if (is_best(adapter, state.steps)) store_kept({adapter, state.steps}, {{}, tensors});
             write_export(parts_.job, parts_.plan.model, state, adapter, tensors);
             written_.insert(adapter);
             note_ends({adapter});
         }}));
    for (const AdapterId a : adapters_.running()) settle(a);
    write_bests(true);
    finish_saving();
    write_bests(true);
    if (foreseen_) foreseen_->pays.wait();  // orders may change the job
    std::vector<AdapterId> trained;
    for (const auto& [adapter, begin] : begun_) trained.push_back(adapter);
    return trained;
}

/// Whether an adapter that ends makes room for one that cannot come while others train, or is to
/// write texts on a worker.
bool Conductor::ends_need_drain() const {
    if (search_.active()) return true;
    if (parts_.desk != nullptr && parts_.job.eval.generate.wanted()) return true;
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
    if (adapters_.any_waiting() && !ends_need_drain()) ++most;
    const std::int32_t end = std::min(fixed_end_, planned.round + most);
    return foreseen_ ? std::min(end, foreseen_->round + 1) : end;
}

/// Of a window, so that one begins where a checkpoint is due, a place becomes free, an end is
/// judged, or states that are evaluated are kept or awaited.
std::int32_t Conductor::most_rounds(const Progress& planned) const {
    std::int32_t most = std::numeric_limits<std::int32_t>::max();
    const EvalJob& eval = parts_.job.eval;
    const bool awaits = eval.keep_best || eval.early_stopping_patience > 0;
    for (const int every : {parts_.job.checkpoint.every_steps, awaits ? eval.every_steps : 0}) {
        if (every > 0) most = std::min(most, every - planned.round % every);
    }
    if (foreseen_) most = std::min(most, std::max(1, foreseen_->round - planned.round));
    if (!adapters_.any_waiting()) return most;
    for (const AdapterId a : adapters_.all()) {
        const std::int32_t total = parts_.plan.adapters[index(a)].total_steps;
        const std::int32_t left = total - planned.steps[index(a)];
        if (!planned.stopped[index(a)] && left > 0) most = std::min(most, left);
    }
    return most;
}

/// Before a window that begins with the round.
bool Conductor::drain_wanted(std::int32_t round) {
    if (parts_.desk != nullptr && desk_wants_drain()) return true;
    return orders_need_drain(round) || must_give_up_any() || budget_spent() ||
           evaluations_need_drain(round) || texts_are_due(round) ||
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
        if (result.step > 0) judge_evaluation(result.adapter, result.step);
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
    std::vector<AdapterId> chosen;
    for (const AdapterId a : stepped) {
        if (exported_.contains(a) || steps_left(a) > 0 || !is_evaluated(a)) continue;
        if (adapters_[a].state.status == AdapterStatus::running) settle(a);
        if (!is_complete(adapters_[a].state.status) || !sweep_.is_wanted(a)) continue;
        exported_.insert(a);
        chosen.push_back(a);
    }
    return chosen;
}

/// By the stream itself (ScheduleStream).
bool Conductor::is_evaluated_behind(const BatchPlan& batch) const {
    const int every = parts_.job.eval.every_steps;
    const bool regular = every > 0 && (batch.round + 1) % every == 0;
    return (regular || batch.last_of_adapter) &&
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

// ---- between streams

/// What their references make of their data, where their objectives ask: as an earlier start of the
/// run found it, or from the plan alone, so that it repeats to the bit. What workers find depends
/// on their ranks: they keep nothing.
void Conductor::refer_newcomers() {
    for (const AdapterId a : adapters_.running()) {
        const AdapterJob& adapter = parts_.job.adapter(a);
        if (!adapter.loss.has_reference()) continue;
        const ReferenceId id = reference_of(adapter);
        if (!referred_.insert(id).second) continue;
        const KeptReferences kept(parts_.job, parts_.identity, id);
        const bool keeps = parts_.desk == nullptr;
        const std::string what =
            cat("dataset ", parts_.job.dataset(id.dataset).name, ": log-probabilities under ",
                id.ref_adapter.empty() ? "the base model" : id.ref_adapter);
        const DatasetInfo& info = parts_.datasets[index(id.dataset)];
        if (const auto known = keeps ? kept.read(info.train.size() + info.eval.size())
                                     : std::optional<std::vector<double>>{}) {
            post(KnownReferences{a, *known});
            performer_.set_references(a, *known);
            log::info(what + " read");
            continue;
        }
        const auto start = std::chrono::steady_clock::now();
        refer(a);
        if (keeps) kept.write(performer_.references().of(id));
        log::info(cat(what, " found in ", format_fixed(seconds_since(start), 1), " s"));
    }
}

void Conductor::refer(AdapterId adapter) {
    activity::begin(activity::Task::plan);
    const Directive directive = ReferWindow{plan_joint_eval_window(
        parts_.job, parts_.plan, all_samples_as_eval(parts_.datasets), {adapter})};
    post(directive);
    performer_.refer(std::get<ReferWindow>(directive).window, [this] { journal_.beat(); });
}

/// Before their first step.
void Conductor::evaluate_newcomers() {
    std::vector<AdapterId> newcomers = adapters_.running();
    std::erase_if(newcomers, [this](AdapterId a) { return !is_untouched(adapters_[a].state); });
    if (parts_.job.sweep) {
        evaluate_bases(newcomers);
    } else {
        evaluate(newcomers);
    }
    journal_.flush();
}

/// Whether those that train are evaluated after this round.
bool Conductor::regular_evaluation() const {
    const int every = parts_.job.eval.every_steps;
    return every > 0 && adapters_.round() % every == 0;
}

/// Evaluates and exports those that trained, where that is not done in the stream.
void Conductor::end_adapters(const std::vector<AdapterId>& trained) {
    std::vector<AdapterId> evaluated;
    for (const AdapterId a : trained) {
        const bool stopped = adapters_[a].state.status == AdapterStatus::stopped;
        if (stopped && !is_evaluated(a)) evaluated.push_back(a);
    }
    evaluate(evaluated);
    judge_evaluations(evaluated);
    activity::begin(activity::Task::end_window);
    journal_.flush();
    for (const AdapterId a : trained) {
        const bool exported = exported_.contains(a);
        const bool complete = is_complete(adapters_[a].state.status);
        if (complete && !exported && sweep_.is_wanted(a)) export_adapter(a);
    }
    if (parts_.job.eval.generate.wanted()) write_texts(trained);
    parts_.stop.window_took(stream_.seconds_since_last_window());
}

/// On all eval samples, or on the first `most_samples` of each dataset.
void Conductor::evaluate(const std::vector<AdapterId>& adapters, std::int64_t most_samples) {
    activity::begin(activity::Task::plan);
    const Directive directive = EvaluateWindow{
        most_samples > 0
            ? plan_joint_eval_window(parts_.job, parts_.plan,
                                     first_eval_samples(parts_.datasets, most_samples), adapters)
            : plan_joint_eval_window(parts_.job, parts_.plan, parts_.datasets, adapters)};
    const JointWindow& joint = std::get<EvaluateWindow>(directive).window;
    const Window& window = joint.common();
    if (window.batches.empty()) return;
    post(directive);
    for (EvalResult result : performer_.evaluate(joint, [this] { journal_.beat(); })) {
        result.step = adapters_[result.adapter].state.steps;
        note_evaluation_of(result);
    }
}

void Conductor::note_evaluation_of(const EvalResult& result) {
    const bool of_pairs = parts_.job.adapter(result.adapter).loss.is_of_pairs();
    const double right = of_pairs ? means_of(result.rewards).accuracies : result.exact_match();
    take_evaluation(result.loss(), right, adapters_[result.adapter].state);
    journal_.evaluated(result);
}

std::vector<NamedTensor> Conductor::gather(AdapterId adapter) {
    post(GatherAdapter{adapter});
    return performer_.gather(adapter);
}

void Conductor::export_adapter(AdapterId adapter) {
    write_export(parts_.job, parts_.plan.model, adapters_[adapter].state, adapter, gather(adapter));
}

/// Of those that have ended, while their memory is not given up.
void Conductor::write_texts(const std::vector<AdapterId>& trained) {
    for (const AdapterId a : trained) {
        const bool ended = is_complete(adapters_[a].state.status) && sweep_.is_wanted(a);
        if (!ended || !has_texts(a)) continue;
        const auto start = std::chrono::steady_clock::now();
        post(GenerateTexts{a});
        const std::vector<GeneratedText> texts =
            performer_.generate(a, [this] { journal_.beat(); });
        const std::string& name = parts_.job.adapter(a).name;
        write_text_atomic(cat(parts_.job.run.dir, "/adapters/", name, "/", generations_file_name),
                          to_text(texts));
        text_seconds_ = seconds_since(start);
        log::info(texts_notice(name, texts, *text_seconds_));
    }
}

bool Conductor::checkpoint_due_by_time() const {
    const double minutes = parts_.job.checkpoint.every_minutes;
    return minutes > 0 && seconds_since(last_checkpoint_) > 60.0 * minutes;
}

/// Time limits only count once this start has got further.
std::string Conductor::reason_to_stop() {
    if (!stop_ordered_.empty()) return stop_ordered_;
    signal_ = std::max({signal_, stop_signal(), channel_.reported()});
    return parts_.stop.reason(signal_, adapters_.round(), stream_.batches_done() > 0);
}

/// Asked once for the adapters that are left. Where it is so, the next start asks again and comes
/// to the same, whether this one gets to it or is killed before.
bool Conductor::redeploys() {
    const RunState now = state();
    const std::vector<AdapterId> left = unfinished_in(now);
    if (!parts_.redeploys || left.empty() || left == now.deployment.judged_for) return false;
    const bool foreseen = foreseen_ && foreseen_->left == left && foreseen_->round == now.round;
    if (foreseen ? foreseen_->pays.get() : parts_.redeploys(now)) return true;
    adapters_.deployment().judged_for = left;
    return false;
}

void Conductor::save() {
    const auto start = std::chrono::steady_clock::now();
    post(SaveCheckpoint{});
    performer_.save(state());
    last_checkpoint_ = std::chrono::steady_clock::now();
    parts_.stop.checkpoint_took(seconds_since(start));
    log::info(cat("checkpoint at round ", adapters_.round()));
    journal_.checkpointed();
    release(adapters_held());
    forget_obeyed(stopping_);
}

/// The memory of those that have ended, now that the checkpoint has them.
void Conductor::release(const std::vector<AdapterId>& saved) {
    for (const AdapterId a : saved) {
        if (is_unfinished(adapters_[a].state.status) || !is_held(a)) continue;
        post(ReleaseAdapter{a});
        performer_.release(a);
    }
}

}  // namespace loratrain

#include "train/conductor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/activity.h"
#include "base/log.h"
#include "io/files.h"
#include "plan/schedule/plan_window.h"
#include "train/early_stopping.h"
#include "train/orders/stop_request.h"
#include "train/records/best_adapter.h"
#include "train/records/exports.h"

namespace loratrain {

Conductor::Conductor(const TrainerParts& parts, Performer& performer, DirectiveChannel& channel)
    : parts_(parts),
      performer_(performer),
      channel_(channel),
      adapters_(parts.job, parts.plan, parts.datasets),
      journal_(parts.job, parts.plan, adapters_, clock_, parts.mpi.size(), parts.view),
      stream_(parts, adapters_, performer, channel, journal_),
      last_checkpoint_(std::chrono::steady_clock::now()) {}

void Conductor::restore(const RunState& state, bool set_back) {
    adapters_.restore(state);
    clock_.continue_from(state.elapsed_seconds);
    set_back_ = set_back;
}

ExitCode Conductor::run(int signal) {
    signal_ = signal;
    if (set_back_) save();
    stop_reason_ = reason_to_stop();
    if (adapters_.finished() || stop_reason_.empty()) {
        inbox_.emplace(parts_.job.run.dir);
        journal_.start();
    }
    while (!finished() && stop_reason_.empty()) train_and_settle();
    parts_.stop.obeyed();
    return end();
}

void Conductor::train_and_settle() {
    admit_adapters();
    evaluate_newcomers();
    const std::vector<AdapterId> trained = adapters_.running();
    train_stream();
    end_adapters(trained);
    obey_orders();
    stop_reason_ = reason_to_stop();
    if (adapters_.finished() || checkpoint_due() || !stop_reason_.empty()) save();
}

ExitCode Conductor::end() {
    const PlanningRecord& planning = stream_.planning();
    if (planning.windows > 0) {
        log::info(cat("planned ", planning.windows, " windows in ",
                      format_fixed(planning.seconds, 2), " s, ",
                      format_fixed(planning.waited_seconds, 2), " s of it waited for"));
        const std::string fillings = to_text(planning.fillings);
        if (!fillings.empty()) log::info("packed " + fillings);
    }
    const bool stopped = !adapters_.finished();
    const bool failed = adapters_.any_failed();
    ExitCode code = stopped ? ExitCode::stopped_resume_me : ExitCode::done;
    if (!stopped && failed) code = ExitCode::some_adapters_failed;
    const std::string failure = failed ? "some adapters failed" : "";
    journal_.end(stopped ? "stopped" : "done", stopped ? stop_reason_ : failure);
    post(Finish{code});
    channel_.finish();
    return code;
}

// ---- one stream of windows

void Conductor::train_stream() {
    const std::int32_t last_round = adapters_.round() + rounds_to_event();
    adapters_.reached(
        stream_.run(last_round, {[this](const BatchResult& result) { on_batch(result); },
                                 [this] { return drain_wanted(); }}));
    settle_stream();
}

/// Rounds until something is known to need an empty pipeline.
std::int32_t Conductor::rounds_to_event() const {
    const std::int32_t round = adapters_.round();
    std::int32_t rounds = std::numeric_limits<std::int32_t>::max() - round;
    for (const int every : {parts_.job.checkpoint.every_steps, parts_.job.eval.every_steps}) {
        if (every > 0) rounds = std::min(rounds, every - round % every);
    }
    rounds = std::min(rounds, parts_.stop.rounds_left(round).value_or(rounds));
    for (const AdapterId a : adapters_.running()) {
        rounds = std::min(rounds, adapters_.steps_left(a));
    }
    return std::max(1, rounds);
}

bool Conductor::drain_wanted() {
    return orders_wait() || must_give_up_any() || checkpoint_due_by_time() ||
           !reason_to_stop().empty();
}

void Conductor::on_batch(const BatchResult& result) {
    const BatchPlan& batch = result.batch;
    AdapterState& adapter = adapters_[batch.adapter].state;
    const double loss =
        batch.denominator > 0 ? result.loss_sum / static_cast<double>(batch.denominator) : 0.0;
    const bool finite = std::isfinite(result.grad_sumsq);
    take_step(batch.step + 1, loss, finite, adapter);
    if (!finite) {
        log::warn(cat("adapter ", parts_.job.adapter(batch.adapter).name, ": gradient of step ",
                      adapter.steps, " is not finite; its update is skipped, the others go on"));
    }
    journal_.batch_done(result);
}

bool Conductor::must_give_up_any() const {
    const std::vector<AdapterId> running = adapters_.running();
    return std::any_of(running.begin(), running.end(), [this](AdapterId a) {
        return adapters_[a].state.bad_steps_in_row >= bad_steps_allowed;
    });
}

void Conductor::settle_stream() {
    for (const AdapterId a : adapters_.running()) {
        AdapterState& adapter = adapters_[a].state;
        const std::int32_t total_steps = parts_.plan.adapters[index(a)].total_steps;
        const std::string failure = failure_reason(adapter, total_steps);
        if (!failure.empty()) {
            const std::string& name = parts_.job.adapter(a).name;
            adapter.status = AdapterStatus::failed;
            write_text_atomic(parts_.job.run.dir + "/adapters/" + name + "/FAILED", failure + "\n");
            log::warn(cat("adapter ", name, " FAILED: ", failure));
        } else if (adapter.steps >= total_steps) {
            adapter.status = AdapterStatus::done;
        }
    }
}

// ---- between streams

/// Before their first step.
void Conductor::evaluate_newcomers() {
    std::vector<AdapterId> newcomers = adapters_.running();
    std::erase_if(newcomers, [this](AdapterId a) { return !is_untouched(adapters_[a].state); });
    evaluate(newcomers);
    journal_.flush();
}

/// Whether those that train are evaluated after this round.
bool Conductor::regular_evaluation() const {
    const int every = parts_.job.eval.every_steps;
    return every > 0 && adapters_.round() % every == 0;
}

/// Evaluates and exports those that trained, as it is due.
void Conductor::end_adapters(const std::vector<AdapterId>& trained) {
    std::vector<AdapterId> evaluated;
    for (const AdapterId a : trained) {
        const AdapterStatus status = adapters_[a].state.status;
        const bool regular = status == AdapterStatus::running && regular_evaluation();
        if (status == AdapterStatus::done || regular) evaluated.push_back(a);
    }
    evaluate(evaluated);
    judge_evaluations(evaluated);
    activity::begin(activity::Task::end_window);
    journal_.flush();
    for (const AdapterId a : trained) {
        if (is_complete(adapters_[a].state.status)) export_adapter(a);
    }
    parts_.stop.window_took(stream_.seconds_since_last_window());
}

void Conductor::evaluate(const std::vector<AdapterId>& adapters) {
    activity::begin(activity::Task::plan);
    const Directive directive =
        EvaluateWindow{plan_joint_eval_window(parts_.job, parts_.plan, parts_.datasets, adapters)};
    const JointWindow& joint = std::get<EvaluateWindow>(directive).window;
    const Window& window = joint.common();
    if (window.batches.empty()) return;
    post(directive);
    const std::vector<EvalSums> sums = performer_.evaluate(joint, [this] { journal_.beat(); });
    for (std::size_t b = 0; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        const auto denominator = static_cast<double>(std::max<std::int64_t>(1, batch.denominator));
        const auto samples = static_cast<double>(std::max<std::int64_t>(1, sums[b].samples));
        take_evaluation(sums[b].loss_sum / denominator,
                        static_cast<double>(sums[b].exact_samples) / samples,
                        adapters_[batch.adapter].state);
        journal_.evaluated(batch.adapter);
    }
}

void Conductor::judge_evaluations(const std::vector<AdapterId>& adapters) {
    const EvalJob& eval = parts_.job.eval;
    for (const AdapterId a : adapters) {
        const AdapterJob& job = parts_.job.adapter(a);
        if (parts_.datasets[index(job.dataset)].eval.empty()) continue;
        AdapterState& state = adapters_[a].state;
        if (note_evaluation(eval, state) && eval.keep_best) keep_best(a);
        const std::string reason = early_stop_reason(eval, state);
        if (reason.empty() || state.status != AdapterStatus::running) continue;
        state.status = AdapterStatus::stopped_early;
        log::info(cat("adapter ", job.name, " stopped early at step ", state.steps, ": ", reason));
    }
}

void Conductor::export_adapter(AdapterId adapter) {
    post(GatherAdapter{adapter});
    const std::vector<NamedTensor> tensors = performer_.gather(adapter);
    write_export(parts_.job, adapters_[adapter].state, adapter, tensors);
}

void Conductor::keep_best(AdapterId adapter) {
    post(GatherAdapter{adapter});
    const std::vector<NamedTensor> tensors = performer_.gather(adapter);
    write_best_adapter(parts_.job, adapters_[adapter].state, adapter, tensors);
}

bool Conductor::checkpoint_due_by_time() const {
    const double minutes = parts_.job.checkpoint.every_minutes;
    return minutes > 0 && seconds_since(last_checkpoint_) > 60.0 * minutes;
}

bool Conductor::checkpoint_due() const {
    const int every = parts_.job.checkpoint.every_steps;
    return (every > 0 && adapters_.round() % every == 0) || checkpoint_due_by_time();
}

/// Time limits only count once this start has got further.
std::string Conductor::reason_to_stop() {
    signal_ = std::max({signal_, stop_signal(), channel_.reported()});
    return parts_.stop.reason(signal_, adapters_.round(), stream_.batches_done() > 0);
}

void Conductor::save() {
    const auto start = std::chrono::steady_clock::now();
    post(SaveCheckpoint{});
    performer_.save(state());
    last_checkpoint_ = std::chrono::steady_clock::now();
    parts_.stop.checkpoint_took(seconds_since(start));
    log::info(cat("checkpoint at round ", adapters_.round()));
    journal_.checkpointed();
    release_ended();
    forget_obeyed();
}

/// Their memory, now that the checkpoint has them.
void Conductor::release_ended() {
    for (const AdapterId a : adapters_.all()) {
        const Residence residence = parts_.run.stage().bank().residence(a);
        const bool held = residence == Residence::resident || residence == Residence::suspended;
        if (is_unfinished(adapters_[a].state.status) || !held) continue;
        post(ReleaseAdapter{a});
        performer_.release(a);
    }
}

}  // namespace loratrain

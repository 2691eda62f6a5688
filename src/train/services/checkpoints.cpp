#include "train/services/checkpoints.h"

#include <algorithm>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "plan/memory/state_sizes.h"
#include "plan/schedule/evaluations.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

/// Files of adapters that a GPU's host writes at the same time, where it holds all their copies.
/// CPU ranks write one at a time: copies would take memory that the plan has not counted.
constexpr std::size_t files_at_once = 4;

}  // namespace

// ---- when

bool CheckpointService::is_due(std::int32_t round) const {
    const CheckpointJob& job = worker_.parts.job.checkpoint;
    if (job.every_steps > 0 && round % job.every_steps == 0) return true;
    return is_due_by_time();
}

bool CheckpointService::is_due_by_time() const {
    const double minutes = worker_.parts.job.checkpoint.every_minutes;
    return minutes > 0 && seconds_since(last_) > 60.0 * minutes;
}

/// While the stream goes on: there is memory for copies, the checkpoint before is written, and no
/// adapter that has ended has still to write texts.
bool CheckpointService::can_begin(std::int32_t round) const {
    return worker_.copies_fit && !writing_ && worker_.services->texts.waiting(round) == 0;
}

/// Of the host's free memory a worker has its ranks' share.
bool CheckpointService::copies_would_fit() const {
    const auto free = static_cast<double>(available_memory());
    return checkpoint_copies_fit(worker_.parts.job, worker_.parts.plan, worker_.held(),
                                 static_cast<std::uint64_t>(worker_.ranks.share_of_host() * free));
}

void CheckpointService::begin_stream() {
    worker_.copies_fit = copies_would_fit();
}

std::int32_t CheckpointService::next_event(const Progress& planned) const {
    const int every = worker_.parts.job.checkpoint.every_steps;
    return every > 0 ? planned.round + every - planned.round % every : no_round;
}

// ---- while the stream goes on

void CheckpointService::on_planning(std::int32_t round) {
    begins_ = is_due(round) && can_begin(round);
}

void CheckpointService::before_window(std::int32_t round,
                                      const std::vector<AdapterId>& /*stepped*/) {
    if (std::exchange(begins_, false)) begin(round);
}

/// Of the state before the round, which no window has begun with yet.
void CheckpointService::begin(std::int32_t round) {
    const RunParts& parts = worker_.parts;
    std::vector<StateAtRound::Goal> goals;
    for (const AdapterId a : worker_.adapters.all()) goals.push_back(goal_at(round, a));
    const std::vector<AdapterId> held = worker_.held();
    writing_.emplace(parts, round, goals, held.size() * std::size(stored_parts));
    last_ = std::chrono::steady_clock::now();
    for (const AdapterId a : worker_.adapters.all()) {
        const AdapterRun& run = worker_.adapters[a];
        AdapterState now = run.owned ? run.state : AdapterState{};
        const bool begins_behind = run.stream.joined() && run.stream.first_round() == round;
        if (begins_behind || !run.owned) now.status = AdapterStatus::waiting;
        writing_->state.note(a, now, worker_.clock.elapsed());
        if (worker_.ranks.residence(a) == Residence::released) writing_->files.keep(a);
    }
    worker_.stream.copy_states(held);
}

StateAtRound::Goal CheckpointService::goal_at(std::int32_t round, AdapterId adapter) const {
    const AdapterRun& run = worker_.adapters[adapter];
    const AdapterState& now = run.state;
    if (!run.owned) return {};
    if (now.status != AdapterStatus::running) {
        const bool may_come = is_unfinished(now.status) && worker_.changes_in_stream();
        return {run.stream.last_step().value_or(now.steps), -1, !may_come};
    }
    const std::int32_t last = now.steps + worker_.adapters.steps_to_come(adapter);
    const std::int32_t first = run.stream.first_round();
    const std::int32_t steps = std::min(last, run.stream.first_steps() + round - first);
    const bool due = steps == last || all_are_evaluated(worker_.parts.job, round);
    const bool evaluates = round > first && worker_.adapters.has_eval_samples(adapter);
    const std::int32_t awaited = due ? steps : 0;  // whoever came in the stream began with one
    const std::optional<std::int32_t> evaluated = run.stream.evaluated();
    const bool has_come = evaluated && *evaluated >= awaited;
    const bool begins_here = first > worker_.adapters.round() && run.stream.first_steps() == 0;
    const bool awaits = evaluates && !has_come && (due || begins_here);
    return {steps, awaits ? awaited : -1, steps == last};
}

void CheckpointService::on_step(const BatchResult& result) {
    if (!writing_) return;
    const AdapterId adapter = result.batch.adapter;
    writing_->state.note(adapter, worker_.state(adapter), worker_.clock.elapsed());
}

void CheckpointService::on_evaluated(AdapterId adapter, std::int32_t step) {
    if (!writing_) return;
    const AdapterRun& run = worker_.adapters[adapter];
    const bool begins_behind = run.stream.first_round() == writing_->state.round();
    if (step == 0 && begins_behind) return;
    writing_->state.note_evaluation(adapter, step, run.state);
}

void CheckpointService::on_part(const PartKey& key, AdapterParts::ByRank& values) {
    if (key.use != PartUse::checkpoint) return;
    const AdapterBank::Counters counters = worker_.ranks.copied_counters(key.adapter);
    if (files_now_ != nullptr) return files_now_->add(key, std::move(values), counters);
    writing_->files.add(key, std::move(values), counters);
    --writing_->parts_left;
}

/// The status of every adapter that has taken its last step says how it ended.
bool CheckpointService::ends_are_decided() const {
    const std::vector<AdapterId> running = worker_.adapters.running();
    return std::all_of(running.begin(), running.end(),
                       [this](AdapterId a) { return worker_.adapters.steps_to_come(a) > 0; });
}

/// What can be done of it without waiting.
void CheckpointService::go_on() {
    Services& services = *worker_.services;
    services.exports.take_written();
    if (!writing_) return;
    const bool all_have_come = writing_->parts_left == 0 && writing_->state.is_known();
    if (!writing_->completing && all_have_come && !services.exports.is_writing() &&
        ends_are_decided() && services.bests.written_for_checkpoint() &&
        services.step_exports.written_for(writing_->state)) {
        worker_.journal.flush();  // a continued run has to find metrics of all steps before
        writing_->files.complete(writing_->state.state(services.dispatch.state()));
        writing_->completing = true;
    }
    if (writing_->completing && writing_->files.idle()) end();
}

void CheckpointService::finish() {
    go_on();
    if (writing_) end();
}

void CheckpointService::end() {
    LORATRAIN_CHECK(writing_->completing, "the checkpoint at round ", writing_->state.round(),
                    " is not complete");
    const activity::Inside writing(activity::Task::checkpoint);
    const double seconds = writing_->files.finish();
    worker_.parts.stop.checkpoint_took(seconds);
    log::info(cat("checkpoint at round ", writing_->state.round()));
    ended_ = writing_->state.ended();
    worker_.services->dispatch.on_checkpoint(writing_->state, seconds);
    writing_.reset();
    tell();
    worker_.services->bests.write(false);
}

/// Of a checkpoint that is there.
void CheckpointService::tell() const {
    worker_.journal.checkpointed();
    if (worker_.parts.checkpointed) worker_.parts.checkpointed();
}

// ---- with an empty pipeline

double CheckpointService::save() {
    const auto start = std::chrono::steady_clock::now();
    save(worker_.adapters.all(), worker_.services->dispatch.state(), worker_.parts.checkpoints);
    last_ = std::chrono::steady_clock::now();
    const double seconds = seconds_since(start);
    worker_.parts.stop.checkpoint_took(seconds);
    log::info(cat("checkpoint at round ", worker_.adapters.round()));
    tell();
    worker_.release(worker_.held());
    return seconds;
}

void CheckpointService::save(const std::vector<AdapterId>& adapters, const RunState& state,
                             const std::string& root) {
    const activity::Inside writing(activity::Task::checkpoint);
    BackgroundCheckpoint files(worker_.parts.job, worker_.parts.plan, worker_.parts.identity,
                               state.round, root, Beside::nothing);
    files_now_ = &files;
    const bool on_gpus = worker_.parts.plan.backend == BackendKind::cuda;
    const std::size_t at_once = on_gpus && copies_would_fit() ? files_at_once : 1;
    for (const AdapterId a : adapters) {
        if (worker_.ranks.residence(a) == Residence::released) files.keep(a);
        if (!worker_.holds(a)) continue;
        worker_.stream.copy_states({a});
        worker_.stream.finish_orders();
        files.wait_for_all_but(at_once - 1);  // copies are given back before the next are made
    }
    files_now_ = nullptr;
    files.complete(state);
    files.finish();
}

}  // namespace loratrain

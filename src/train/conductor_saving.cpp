#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "base/system.h"
#include "plan/memory/checkpoint_copies.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"

/// Checkpoints that are written while a stream goes on.

namespace loratrain {

/// Ranks have a state of it.
bool Conductor::is_held(AdapterId adapter) const {
    const Residence residence = parts_.run.stage().bank().residence(adapter);
    return residence == Residence::resident || residence == Residence::suspended;
}

std::vector<AdapterId> Conductor::adapters_held() const {
    std::vector<AdapterId> held = adapters_.all();
    std::erase_if(held, [this](AdapterId a) { return !is_held(a); });
    return held;
}

/// Of the host's free memory a worker has its ranks' share.
bool Conductor::saves_in_stream() const {
    const int here = parts_.mpi.local_size();
    const double share = static_cast<double>(std::min(here, parts_.mpi.size())) / here;
    const auto free = static_cast<double>(proc_value("/proc/meminfo", "MemAvailable"));
    return checkpoint_copies_fit(parts_.job, parts_.plan, adapters_held(),
                                 static_cast<std::uint64_t>(share * free));
}

bool Conductor::checkpoint_due_at(std::int32_t round) const {
    const int every = parts_.job.checkpoint.every_steps;
    return (every > 0 && round % every == 0) || checkpoint_due_by_time();
}

/// Of a window, so that one begins where a checkpoint is due.
std::int32_t Conductor::most_rounds(std::int32_t round) const {
    const int every = parts_.job.checkpoint.every_steps;
    return every > 0 ? every - round % every : std::numeric_limits<std::int32_t>::max();
}

/// Of the state before the round, which no window has begun with yet.
std::vector<AdapterId> Conductor::begin_checkpoint(std::int32_t round) {
    std::vector<StateAtRound::Goal> goals;
    for (const AdapterId a : adapters_.all()) goals.push_back(goal_at(round, a));
    std::vector<AdapterId> held = adapters_held();
    saving_.emplace(parts_, round, goals, held.size() * std::size(stored_parts));
    last_checkpoint_ = std::chrono::steady_clock::now();
    for (const AdapterId a : adapters_.all()) {
        saving_->state.note(a, adapters_[a].state, clock_.elapsed());
        if (parts_.run.stage().bank().residence(a) == Residence::released) saving_->files.keep(a);
    }
    return held;
}

StateAtRound::Goal Conductor::goal_at(std::int32_t round, AdapterId adapter) const {
    const AdapterState& now = adapters_[adapter].state;
    if (now.status != AdapterStatus::running) return {now.steps, false, true};
    const std::int32_t total = parts_.plan.adapters[index(adapter)].total_steps;
    const std::int32_t steps = std::min(total, began_with_.at(adapter) + round - adapters_.round());
    const int every = parts_.job.eval.every_steps;
    const bool evaluated = evaluated_.contains(adapter) && evaluated_.at(adapter) == steps;
    const bool due = steps == total || (every > 0 && round % every == 0);
    const bool awaits = due && !evaluated && evaluates_in_stream() &&
                        has_eval_samples(parts_.job, parts_.datasets, adapter);
    return {steps, awaits, steps == total};
}

void Conductor::store_part(const PartKey& key, AdapterParts::ByRank values) {
    saving_->files.add(key, std::move(values), performer_.copies().counters(key.adapter));
    --saving_->parts_left;
}

/// No adapter that has taken its last step is to be settled yet.
bool Conductor::ends_are_settled() const {
    const std::vector<AdapterId> running = adapters_.running();
    return std::all_of(running.begin(), running.end(),
                       [this](AdapterId a) { return adapters_.steps_left(a) > 0; });
}

/// What can be done of it without waiting.
void Conductor::go_on_saving() {
    if (!saving_) return;
    const bool all_have_come = saving_->parts_left == 0 && saving_->state.is_known();
    if (!saving_->completing && all_have_come && ends_are_settled()) {
        journal_.flush();  // a continued run has to find metrics of all steps before
        saving_->files.complete(saving_->state.state(state()));
        saving_->completing = true;
    }
    if (saving_->completing && saving_->files.idle()) end_saving();
}

/// All batches, evaluations and parts have come, and adapters are settled.
void Conductor::finish_saving() {
    go_on_saving();
    if (saving_) end_saving();
}

void Conductor::end_saving() {
    activity::begin(activity::Task::checkpoint);
    const double seconds = saving_->files.finish();
    parts_.stop.checkpoint_took(seconds);
    log::info(cat("checkpoint at round ", saving_->state.round()));
    saved_ended_ = saving_->state.ended();
    if (parts_.desk != nullptr) tell_saved(saving_->state, seconds);
    saving_.reset();
    journal_.checkpointed();
    forget_obeyed();
}

}  // namespace loratrain

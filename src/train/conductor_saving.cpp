#include <algorithm>
#include <iterator>
#include <utility>

#include "base/activity.h"
#include "base/background_work.h"
#include "base/log.h"
#include "base/system.h"
#include "plan/memory/checkpoint_copies.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"
#include "train/records/exports.h"

/// Checkpoints and exports that are written while a stream goes on.

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

/// While the stream goes on. Who has ended in a checkpoint has written its texts.
bool Conductor::can_save_at(std::int32_t round) const {
    return saves_in_stream_ && !saving_ && texts_waiting(round) == 0;
}

/// Of the state before the round, which no window has begun with yet.
std::vector<AdapterId> Conductor::begin_checkpoint(std::int32_t round) {
    std::vector<StateAtRound::Goal> goals;
    for (const AdapterId a : adapters_.all()) goals.push_back(goal_at(round, a));
    std::vector<AdapterId> held = adapters_held();
    saving_.emplace(parts_, round, goals, held.size() * std::size(stored_parts));
    saving_->stops = stopping_;
    last_checkpoint_ = std::chrono::steady_clock::now();
    for (const AdapterId a : adapters_.all()) {
        AdapterState now = adapters_[a].state;
        const auto begin = begun_.find(a);
        const bool begins_behind = begin != begun_.end() && begin->second.round == round;
        if (!has(a)) now = {};
        if (begins_behind || !has(a)) now.status = AdapterStatus::waiting;
        saving_->state.note(a, now, clock_.elapsed());
        if (parts_.run.stage().bank().residence(a) == Residence::released) saving_->files.keep(a);
    }
    return held;
}

StateAtRound::Goal Conductor::goal_at(std::int32_t round, AdapterId adapter) const {
    const AdapterState& now = adapters_[adapter].state;
    if (!has(adapter)) return {};
    if (now.status != AdapterStatus::running) {
        const bool may_come = is_unfinished(now.status) && changes_in_stream();
        const auto last = last_steps_.find(adapter);
        return {last == last_steps_.end() ? now.steps : last->second, -1, !may_come};
    }
    const Begin& begin = begun_.at(adapter);
    const std::int32_t last = now.steps + steps_left(adapter);
    const std::int32_t steps = std::min(last, begin.steps + round - begin.round);
    const bool due = steps == last || all_are_evaluated(parts_.job, round);
    const bool evaluates =
        round > begin.round && has_eval_samples(parts_.job, parts_.datasets, adapter);
    const std::int32_t awaited = due ? steps : 0;  // whoever came in the stream began with one
    const auto evaluated = evaluated_.find(adapter);
    const bool has_come = evaluated != evaluated_.end() && evaluated->second >= awaited;
    const bool begins_here = begin.round > adapters_.round() && begin.steps == 0;
    const bool awaits = evaluates && !has_come && (due || begins_here);
    return {steps, awaits ? awaited : -1, steps == last};
}

void Conductor::store_part(const PartKey& key, AdapterParts::ByRank values) {
    saving_->files.add(key, std::move(values), performer_.copies().counters(key.adapter));
    --saving_->parts_left;
}

/// No adapter that has taken its last step is to be settled yet.
bool Conductor::ends_are_settled() const {
    const std::vector<AdapterId> running = adapters_.running();
    return std::all_of(running.begin(), running.end(),
                       [this](AdapterId a) { return steps_left(a) > 0; });
}

/// Of those that its state has found.
bool Conductor::bests_are_written() const {
    return std::none_of(bests_.begin(), bests_.end(),
                        [this](const Best& best) { return saving_has(best); });
}

/// What can be done of it without waiting.
void Conductor::go_on_saving() {
    take_exported();
    if (!saving_) return;
    const bool all_have_come = saving_->parts_left == 0 && saving_->state.is_known();
    if (!saving_->completing && all_have_come && exporting_.empty() && ends_are_settled() &&
        bests_are_written()) {
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
    forget_obeyed(saving_->stops);
    saving_.reset();
    journal_.checkpointed();
    write_bests(false);
}

/// The pipeline would stand still for as long as tensors are put together and written.
void Conductor::export_in_background(AdapterId adapter, AdapterParts::ByRank values) {
    const AdapterState& state = adapters_[adapter].state;
    exporting_.push_back(
        {adapter, std::async(std::launch::async, [this, adapter, state, own = std::move(values)] {
             const BackgroundWork background;
             write_export(parts_.job, parts_.plan.model, state, adapter,
                          performer_.join(adapter, own));
         })});
}

void Conductor::take_exported() {
    std::erase_if(exporting_, [this](Exporting& exporting) {
        const auto at_once = std::chrono::seconds(0);
        if (exporting.files.wait_for(at_once) != std::future_status::ready) return false;
        try {
            exporting.files.get();
        } catch (...) {
            activity::begin(activity::Task::export_adapter, number(exporting.adapter));
            throw;
        }
        written_.insert(exporting.adapter);
        return true;
    });
}

void Conductor::finish_exports() {
    for (const Exporting& exporting : exporting_) exporting.files.wait();
    take_exported();
}

}  // namespace loratrain

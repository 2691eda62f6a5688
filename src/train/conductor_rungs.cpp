#include <algorithm>
#include <iterator>

#include "plan/schedule/evaluations.h"
#include "train/conductor.h"

/// Trials of a sweep at rungs, while the stream goes on. They are evaluated behind the round that
/// brings them there; the next is planned when it is known what they come to, so that who trains in
/// which round does not depend on how long anything takes.

namespace loratrain {

/// Steps that the stream has planned for it before the round.
std::int32_t Conductor::steps_before(AdapterId adapter, std::int32_t round) const {
    const auto last = last_steps_.find(adapter);
    if (last != last_steps_.end()) return last->second;
    const Begin& begin = begun_.at(adapter);
    const std::int32_t total = parts_.plan.adapters[index(adapter)].total_steps;
    return std::min(total, begin.steps + round - begin.round);
}

/// With the last round before this one.
bool Conductor::comes_to_rung(AdapterId adapter, std::int32_t round) const {
    return search_.active() && trains_beyond(adapter, round) &&
           steps_before(adapter, round) == adapters_.next_rung(adapter);
}

/// Its end counts at rungs that it has not been at.
bool Conductor::ends_before_rungs(AdapterId adapter) const {
    const bool judges = search_.active() && parts_.desk == nullptr;
    if (!judges || !parts_.job.adapter(adapter).trial) return false;
    const auto rungs = static_cast<std::size_t>(parts_.job.sweep->rungs - 1);
    const std::int32_t total = parts_.plan.adapters[index(adapter)].total_steps;
    return adapters_[adapter].state.rungs.size() < rungs && adapters_.next_rung(adapter) == total;
}

/// An evaluation that the stream has behind these steps of the trial, as it is at a rung there.
bool Conductor::is_at_rung(AdapterId adapter, std::int32_t step) const {
    if (!search_.active() || step != adapters_.next_rung(adapter)) return false;
    const Begin& begin = begun_.at(adapter);
    return step < parts_.plan.adapters[index(adapter)].total_steps &&
           !all_are_evaluated(parts_.job, begin.round + step - begin.steps);
}

/// What all are evaluated by is not what a rung counts.
bool Conductor::rungs_need_drain(std::int32_t round) const {
    return all_are_evaluated(parts_.job, round) &&
           std::any_of(begun_.begin(), begun_.end(),
                       [&](const auto& entry) { return comes_to_rung(entry.first, round); });
}

/// What verdicts before the round hang on has not been told.
bool Conductor::awaits_rungs(std::int32_t round) const {
    const bool judges = search_.active() && parts_.desk == nullptr;
    if (!judges || rungs_need_drain(round)) return false;
    return std::any_of(begun_.begin(), begun_.end(), [&](const auto& entry) {
        const AdapterId a = entry.first;
        const std::int32_t steps = steps_before(a, round);
        const bool ends = steps == parts_.plan.adapters[index(a)].total_steps;
        if (!comes_to_rung(a, round) && !(ends && ends_before_rungs(a))) return false;
        const auto evaluated = evaluated_.find(a);
        return evaluated == evaluated_.end() || evaluated->second < steps;
    });
}

/// As between two streams, before the round.
void Conductor::judge_in_stream(std::int32_t round) {
    std::vector<AdapterId> arrived;
    for (const auto& [a, begin] : begun_) {
        const bool running = adapters_[a].state.status == AdapterStatus::running;
        if (!running) continue;
        if (comes_to_rung(a, round)) arrived.push_back(a);
        if (steps_left(a) == 0 && ends_before_rungs(a)) settle(a);
    }
    search_.arrived(arrived);
    record_trials(!arrived.empty());
}

/// One that has ended: of its last steps, or what they leave in the run directory.
bool Conductor::waits_for_files(AdapterId adapter) const {
    const bool has_steps_to_come = last_steps_.contains(adapter) && steps_left(adapter) > 0;
    const bool waits = !written_.contains(adapter) &&
                       is_complete(adapters_[adapter].state.status) &&
                       (exported_.contains(adapter) || sweep_.is_wanted(adapter));
    return has_steps_to_come || waits || has_best_to_write(adapter);
}

/// Those that have ended, and are exported or not wanted.
void Conductor::record_trials(bool news) {
    std::vector<AdapterId> ended = adapters_.all();
    std::erase_if(ended, [this](AdapterId a) {
        const bool over = is_ended_trial(parts_.job.adapter(a), adapters_[a].state);
        return !over || sweep_.has_recorded(a) || waits_for_files(a);
    });
    if (ended.empty() && !news) return;
    journal_.flush();
    note_ends(ended);
}

/// The run as it is before what is planned next, as far as admission asks.
AdapterTable Conductor::table_before(const Progress& planned, const StreamChange& change) const {
    AdapterTable table = adapters_;
    for (const auto& [a, begin] : begun_) {
        AdapterState& state = table[a].state;
        const bool ends =
            std::find(change.ended.begin(), change.ended.end(), a) != change.ended.end();
        state.steps = planned.steps[index(a)];
        const bool stopped = planned.stopped[index(a)] && state.status == AdapterStatus::running;
        const bool over = state.steps == parts_.plan.adapters[index(a)].total_steps;
        if (over || stopped || ends) state.status = AdapterStatus::done;
    }
    return table;
}

/// A trial makes room for others, or is at a rung.
void Conductor::pause(AdapterId adapter, const Progress& planned, StreamChange& change) {
    AdapterState& state = adapters_[adapter].state;
    last_steps_[adapter] = planned.steps[index(adapter)];
    change.paused.push_back(adapter);
    if (!is_unfinished(state.status)) return;
    state.status = is_unjudged(state) ? AdapterStatus::parked : AdapterStatus::waiting;
}

/// Whether it has to stay in backend memory while it does not train.
bool Conductor::is_resident_still(AdapterId adapter) const {
    const AdapterState& state = adapters_[adapter].state;
    if (written_.contains(adapter)) return has_texts(adapter);
    if (!parts_.job.adapter(adapter).trial || exported_.contains(adapter)) return true;
    const bool may_be_exported = state.status == AdapterStatus::running ||
                                 (is_complete(state.status) && sweep_.is_wanted(adapter));
    return may_be_exported || has_best_to_write(adapter) || !stepped_.contains(adapter);
}

}  // namespace loratrain

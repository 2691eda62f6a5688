#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/schedule/admission.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"

/// Who comes and goes while a stream goes on: adapters that are ordered to stop, and those that
/// wait, as places become free. What is decided depends on the steps that are planned, not on
/// those that have been told of, so that it repeats; its round is where a window begins.

namespace loratrain {

/// Who trains may change while others train: nobody else has to know of an end before they train
/// on. Trials of a sweep are judged, workers get their adapters, and runs are deployed anew with
/// the pipeline empty. What needs that of single adapters (admit_in_stream): a place that others
/// have to leave, for a higher priority; references that are not known; more memory than there is
/// beside what is resident, or for copies.
bool Conductor::changes_in_stream() const {
    return !parts_.job.sweep && parts_.desk == nullptr && !parts_.redeploys;
}

/// One that waits and has begun is evaluated and exported as it stops, which takes it back into
/// memory.
bool Conductor::orders_need_drain(std::int32_t round) {
    if (!orders_wait()) return false;
    if (!changes_in_stream() || round >= fixed_end_) return true;
    if (orders_.stops.empty()) return false;
    std::set<AdapterId> staying;
    for (const auto& [adapter, begin] : begun_) {
        if (trains_beyond(adapter, round)) staying.insert(adapter);
    }
    for (const AdapterId a : adapters_.all()) {
        const std::string& name = parts_.job.adapter(a).name;
        if (std::find(orders_.stops.begin(), orders_.stops.end(), name) == orders_.stops.end()) {
            continue;
        }
        const AdapterState& state = adapters_[a].state;
        if (state.status == AdapterStatus::waiting && state.steps > 0) return true;
        staying.erase(a);
    }
    return staying.empty();
}

/// None: the pipeline has to be empty.
std::optional<StreamChange> Conductor::change_stream(const Progress& planned) {
    StreamChange change;
    end_stopped_early(planned, change);
    for (const std::string& name : std::exchange(orders_, {}).stops) {
        if (const std::optional<AdapterId> adapter = take_stop(name)) {
            stop_in_stream(*adapter, planned, change);
        }
    }
    if (adapters_.any_waiting() && changes_in_stream() && !admit_in_stream(planned, change)) {
        return {};
    }
    keep_evaluated(planned, change);
    return change;
}

void Conductor::stop_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change) {
    const AdapterState& state = adapters_[adapter].state;
    if (state.status == AdapterStatus::waiting) return stop_adapter(adapter);
    const std::int32_t steps = planned.steps[index(adapter)];
    const bool ends = planned.stopped[index(adapter)] ||
                      steps >= parts_.plan.adapters[index(adapter)].total_steps;
    if (state.status != AdapterStatus::running || ends) return;
    last_steps_[adapter] = steps;
    change.ended.push_back(adapter);
    const int every = parts_.job.eval.every_steps;
    const bool evaluated = every > 0 && planned.round % every == 0;
    if (!evaluated && state.steps < steps &&
        has_eval_samples(parts_.job, parts_.datasets, adapter)) {
        journal_.await_evaluation(adapter, steps);
    }
}

/// False where those whose turn it is cannot come while others train.
bool Conductor::admit_in_stream(const Progress& planned, StreamChange& change) {
    const auto stops = [&](AdapterId a) {
        return std::find(change.ended.begin(), change.ended.end(), a) != change.ended.end();
    };
    std::vector<AdapterClaim> claims = adapters_.claims();
    std::set<AdapterId> training;
    for (const auto& [a, begin] : begun_) {
        const std::int32_t total = parts_.plan.adapters[index(a)].total_steps;
        AdapterClaim& claim = claims[index(a)];
        claim.begun = planned.steps[index(a)] > 0;
        claim.unfinished = claim.unfinished && !planned.stopped[index(a)] && !stops(a) &&
                           planned.steps[index(a)] < total;
        if (claim.unfinished) training.insert(a);
    }
    const std::vector<AdapterId> chosen = admit(parts_.job, parts_.plan, claims);
    const std::set<AdapterId> admitted(chosen.begin(), chosen.end());
    if (admitted == training) return true;
    if (planned.round >= fixed_end_) return false;
    if (!std::includes(admitted.begin(), admitted.end(), training.begin(), training.end())) {
        return false;
    }
    std::set<AdapterId> resident = admitted;
    for (const auto& [a, begin] : begun_) {
        if (!exported_.contains(a) || has_texts(a)) resident.insert(a);
    }
    change.resident.assign(resident.begin(), resident.end());
    if (!fit_together(parts_.job, parts_.plan, change.resident)) return false;
    if (saves_in_stream_ && !saves_in_stream()) return false;
    std::set_difference(admitted.begin(), admitted.end(), training.begin(), training.end(),
                        std::back_inserter(change.begun));
    const bool know_references =
        std::all_of(change.begun.begin(), change.begun.end(), [this](AdapterId a) {
            const AdapterJob& adapter = parts_.job.adapter(a);
            return !adapter.loss.has_reference() || referred_.contains(reference_of(adapter));
        });
    if (!know_references) return false;
    for (const AdapterId a : change.begun) begin_in_stream(a, planned);
    admitted_ = change.resident;
    take_memory_of_ended(change);
    return true;
}

/// What a checkpoint has and files have been written of.
void Conductor::take_memory_of_ended(StreamChange& change) {
    if (saving_) return;
    for (const AdapterId a : saved_ended_) {
        if (written_.contains(a) && is_held(a)) change.released.push_back(a);
    }
}

void Conductor::begin_in_stream(AdapterId adapter, const Progress& planned) {
    AdapterState& state = adapters_[adapter].state;
    state.status = AdapterStatus::running;
    begun_[adapter] = {planned.round, state.steps};
    if (is_untouched(state) && has_eval_samples(parts_.job, parts_.datasets, adapter)) {
        journal_.await_first_evaluation(adapter);
    }
}

}  // namespace loratrain

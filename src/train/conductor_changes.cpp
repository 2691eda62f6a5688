#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "plan/schedule/admission.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"

/// Who comes and goes while a stream goes on: adapters that are ordered to stop, and those that
/// wait, as places become free. What is decided depends on the steps that are planned, not on
/// those that have been told of, so that it repeats; its round is where a window begins.

namespace loratrain {

/// Who trains may change while others train: nobody else has to know of an end before they train
/// on. Runs are deployed anew with the pipeline empty, and so are texts written of trials, which
/// may not be kept later, and on workers, which tell of ends then. What needs that of single
/// adapters (admit_in_stream): a place that others have to leave, for a higher priority;
/// references, or what a base comes to, that are not known; more memory than there is beside what
/// is resident, or for copies.
bool Conductor::changes_in_stream() const {
    const bool tells_of_ends = parts_.job.sweep || parts_.desk != nullptr;
    return !(tells_of_ends && parts_.job.eval.generate.wanted()) && !parts_.redeploys;
}

/// Those of a sweep change what its trials are judged beside.
bool Conductor::takes_orders_in_stream() const {
    return !parts_.job.sweep && parts_.desk == nullptr && changes_in_stream();
}

/// One that waits and has begun is evaluated and exported as it stops, which takes it back into
/// memory.
bool Conductor::orders_need_drain(std::int32_t round) {
    if (!orders_wait()) return false;
    if (!takes_orders_in_stream() || round >= fixed_end_) return true;
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
    const bool searches = search_.active() && !ends_need_drain();
    if (parts_.desk != nullptr && changes_in_stream()) {
        obey_in_stream();
        tell_parked();
        if (searches) park_in_stream(planned, change);
    } else if (searches) {
        judge_in_stream(planned.round);
    }
    const bool any_may_come = adapters_.any_waiting() || searches;
    if (any_may_come && changes_in_stream() && !admit_in_stream(planned, change)) return {};
    if (parts_.desk != nullptr && changes_in_stream()) {
        ask_for_adapters(table_before(planned, change));
    }
    if (searches) change.stops = adapters_.progress();
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
    if (!all_are_evaluated(parts_.job, planned.round) && state.steps < steps &&
        has_eval_samples(parts_.job, parts_.datasets, adapter)) {
        journal_.await_evaluation(adapter, steps);
    }
}

/// False where those whose turn it is cannot come while others train.
bool Conductor::admit_in_stream(const Progress& planned, StreamChange& change) {
    AdapterTable table = table_before(planned, change);
    const std::vector<AdapterId> chosen = choose_adapters(table);
    const std::set<AdapterId> admitted(chosen.begin(), chosen.end());
    std::set<AdapterId> training;
    for (const auto& [a, begin] : begun_) {
        const bool ends = table[a].state.status == AdapterStatus::done;
        if (trains_beyond(a, planned.round) && !ends) training.insert(a);
    }
    std::vector<AdapterId> leaving;
    std::set_difference(training.begin(), training.end(), admitted.begin(), admitted.end(),
                        std::back_inserter(leaving));
    std::set_difference(admitted.begin(), admitted.end(), training.begin(), training.end(),
                        std::back_inserter(change.begun));
    const bool changes = !leaving.empty() || !change.begun.empty();
    if (changes && planned.round >= fixed_end_) return false;
    const bool may_leave = std::all_of(leaving.begin(), leaving.end(), [this](AdapterId a) {
        return search_.active() && parts_.job.adapter(a).trial;
    });
    const bool may_begin = std::all_of(change.begun.begin(), change.begun.end(),
                                       [this](AdapterId a) { return may_begin_in_stream(a); });
    if (!may_leave || !may_begin) return false;
    std::set<AdapterId> resident = admitted;
    for (const auto& [a, begin] : begun_) {
        if (is_resident_still(a)) resident.insert(a);
    }
    change.resident.assign(resident.begin(), resident.end());
    if (!change.begun.empty()) {
        if (!fit_together(parts_.job, parts_.plan, change.resident)) return false;
        if (saves_in_stream_ && !saves_in_stream()) return false;
        admitted_ = change.resident;
    }
    for (const AdapterId a : leaving) pause(a, planned, change);
    for (const AdapterId a : change.begun) begin_in_stream(a, planned, change);
    for (const AdapterId a : admitted) adapters_[a].state.status = AdapterStatus::running;
    take_memory_of_ended(change);
    return true;
}

bool Conductor::may_begin_in_stream(AdapterId adapter) const {
    const AdapterJob& job = parts_.job.adapter(adapter);
    if (job.loss.has_reference() && !referred_.contains(reference_of(job))) return false;
    const bool shares = parts_.job.sweep && start_key(job) && awaits_first_evaluation(adapter);
    return !shares || knows_start(adapter);
}

/// What a checkpoint has and files have been written of; of trials what is recorded.
void Conductor::take_memory_of_ended(StreamChange& change) {
    if (saving_) return;
    for (const AdapterId a : saved_ended_) {
        if (written_.contains(a) && is_held(a)) change.released.push_back(a);
    }
    for (const AdapterId a : stepped_) {
        const AdapterState& state = adapters_[a].state;
        const bool ended = told_.contains(a) ||
                           (is_ended_trial(parts_.job.adapter(a), state) && sweep_.has_recorded(a));
        const auto& known = saved_ended_;
        const bool is_known = std::find(known.begin(), known.end(), a) != known.end();
        if (ended && is_held(a) && !is_known) change.released.push_back(a);
    }
}

void Conductor::begin_in_stream(AdapterId adapter, const Progress& planned, StreamChange& change) {
    const AdapterState& state = adapters_[adapter].state;
    begun_[adapter] = {planned.round, planned.steps[index(adapter)]};
    last_steps_.erase(adapter);
    stepped_.erase(adapter);
    if (!has_eval_samples(parts_.job, parts_.datasets, adapter)) return;
    if (is_untouched(state)) {
        if (!knows_start(adapter)) return journal_.await_first_evaluation(adapter);
        take_start(adapter);
        if (!parts_.job.adapter(adapter).trial) {
            log::info(cat(parts_.job.adapter(adapter).name, " starts as an adapter did that was ",
                          "evaluated before its first step: loss ",
                          format_fixed(state.last_eval_loss, 4)));
        }
    }
    if (planned.steps[index(adapter)] > 0) return;
    change.known.push_back(adapter);
    evaluated_[adapter] = 0;
}

}  // namespace loratrain

#include "train/services/admission.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "plan/schedule/admission_rules.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

AdapterClaim claim_of(const AdapterTable& adapters, AdapterId adapter) {
    const AdapterState& state = adapters[adapter].state;
    return {may_train(state.status), state.steps > 0, adapters.steps_left(adapter)};
}

}  // namespace

// ---- how long a stream and its windows are

void AdmissionService::begin_stream() {
    worker_.fixed_end = worker_.adapters.round() + rounds_to_event();
}

/// Rounds until something is known to need an empty pipeline, whoever comes and goes.
std::int32_t AdmissionService::rounds_to_event() const {
    const std::int32_t round = worker_.adapters.round();
    std::int32_t rounds = no_round - round;
    const int save_every = worker_.copies_fit ? 0 : worker_.parts.job.checkpoint.every_steps;
    if (save_every > 0) rounds = save_every - round % save_every;
    rounds = std::min(rounds, worker_.parts.stop.rounds_left(round).value_or(rounds));
    if (worker_.ends_need_drain()) {
        for (const AdapterId a : worker_.adapters.running()) {
            rounds = std::min(rounds, worker_.adapters.steps_to_stop(a));
        }
    }
    return std::max(1, rounds);
}

/// Where the last of those that train ends; later while an adapter waits that may take a place
/// then.
std::int32_t AdmissionService::last_round(const Progress& planned) const {
    std::int32_t most = 0;
    for (const AdapterId a : worker_.adapters.all()) {
        if (planned.stopped[index(a)]) continue;
        most = std::max(most, worker_.total_steps(a) - planned.steps[index(a)]);
    }
    if (worker_.adapters.any_may_come() && !worker_.ends_need_drain()) ++most;
    return std::min(worker_.fixed_end, planned.round + most);
}

/// A place becomes free.
std::int32_t AdmissionService::next_event(const Progress& planned) const {
    if (!worker_.adapters.any_may_come()) return no_round;
    std::int32_t next = no_round;
    for (const AdapterId a : worker_.adapters.all()) {
        if (planned.stopped[index(a)]) continue;
        for (const std::int32_t stop : {worker_.total_steps(a), worker_.adapters.next_stop(a)}) {
            const std::int32_t left = stop - planned.steps[index(a)];
            if (left > 0) next = std::min(next, planned.round + left);
        }
    }
    return next;
}

// ---- with an empty pipeline

void AdmissionService::admit() {
    const std::vector<AdapterId> admitted = choose(worker_.adapters);
    worker_.adapters.admit(admitted);
    if (admitted == admitted_) return;
    admitted_ = admitted;
    worker_.ranks.order(AdmitAdapters{admitted});
    worker_.ranks.perform_ordered();
}

void AdmissionService::hold(const std::vector<AdapterId>& adapters) {
    std::set<AdapterId> both(adapters.begin(), adapters.end());
    std::vector<AdapterId> held(both.begin(), both.end());
    for (const AdapterId a : admitted_) {
        if (is_unfinished(worker_.state(a).status)) both.insert(a);
    }
    const std::vector<AdapterId> all(both.begin(), both.end());
    const RunParts& parts = worker_.parts;
    if (all.size() <= most_admitted(parts.job) && fit_together(parts.job, parts.plan, all)) {
        held = all;
    }
    if (held == admitted_) return;
    admitted_ = held;
    worker_.ranks.order(AdmitAdapters{held});
    worker_.ranks.perform_ordered();
}

int AdmissionService::places(const AdapterTable& table) const {
    const RunParts& parts = worker_.parts;
    std::vector<AdapterClaim> claims = table.claims();
    const auto had = std::count_if(claims.begin(), claims.end(),
                                   [](const AdapterClaim& claim) { return claim.unfinished; });
    const auto admitted = std::ssize(loratrain::admit(parts.job, parts.plan, claims));
    if (admitted < had) return 0;
    for (const AdapterId a : worker_.adapters.all()) {
        if (!worker_.adapters[a].owned) claims[index(a)] = claim_of(worker_.adapters, a);
    }
    return static_cast<int>(std::ssize(loratrain::admit(parts.job, parts.plan, claims)) -
                            admitted) +
           1;
}

/// Those that claim it; beside them trials on speculation, as long as that costs the others
/// little.
std::vector<AdapterId> AdmissionService::choose(AdapterTable& table) const {
    const RunParts& parts = worker_.parts;
    std::vector<AdapterClaim> claims = table.claims();
    int place = 0;
    for (const AdapterId a : TrialSearch(parts.job, table).speculation()) {
        claims[index(a)].unfinished = true;
        claims[index(a)].speculation = ++place;
    }
    std::vector<AdapterId> admitted = loratrain::admit(parts.job, parts.plan, claims);
    if (place == 0 || parts.job.sweep->speculate == Speculation::always) return admitted;
    double room = tokens_of_fixed_costs(parts.plan);
    std::erase_if(admitted, [&](AdapterId a) {
        room -= table[a].tokens_per_step;
        return claims[index(a)].speculation > 0 && room < 0;
    });
    return admitted;
}

// ---- while the stream goes on

/// Where nobody joins a stream: a batch has come of an adapter that would be admitted now.
bool AdmissionService::needs_drain(std::int32_t /*round*/) {
    AdapterTable& adapters = worker_.adapters;
    if (worker_.changes_in_stream() || !adapters.any_grows()) return false;
    const std::vector<AdapterId> chosen = choose(adapters);
    return std::any_of(chosen.begin(), chosen.end(), [&](AdapterId a) {
        return adapters.grows(a) && adapters[a].state.status == AdapterStatus::waiting;
    });
}

bool AdmissionService::change(const Progress& planned, StreamChange& change) {
    const bool searches = worker_.searches_in_stream();
    const bool grows = worker_.adapters.any_grows();
    const bool any_may_come = worker_.adapters.any_waiting() || searches || grows;
    const bool may_change = worker_.changes_in_stream();
    if (any_may_come && may_change && !admit_in_stream(planned, change)) return false;
    if (may_change) worker_.services->dispatch.ask_for_adapters(table_before(planned, change));
    if (searches || grows) change.stops = worker_.adapters.progress();
    return true;
}

/// The run as it is before what is planned next, as far as admission asks.
AdapterTable AdmissionService::table_before(const Progress& planned,
                                            const StreamChange& change) const {
    AdapterTable table = worker_.adapters;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        AdapterState& state = table[a].state;
        const bool ends =
            std::find(change.ended.begin(), change.ended.end(), a) != change.ended.end();
        state.steps = planned.steps[index(a)];
        const bool stopped = planned.stopped[index(a)] && state.status == AdapterStatus::running;
        const bool over = state.steps == worker_.total_steps(a);
        if (over || stopped || ends) state.status = AdapterStatus::done;
    }
    return table;
}

/// False where those whose turn it is cannot come while others train.
bool AdmissionService::admit_in_stream(const Progress& planned, StreamChange& change) {
    AdapterTable table = table_before(planned, change);
    const std::vector<AdapterId> chosen = choose(table);
    const std::set<AdapterId> admitted(chosen.begin(), chosen.end());
    std::set<AdapterId> training;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const bool ends = table[a].state.status == AdapterStatus::done;
        if (worker_.adapters.trains_beyond(a, planned.round) && !ends) training.insert(a);
    }
    std::vector<AdapterId> leaving;
    std::set_difference(training.begin(), training.end(), admitted.begin(), admitted.end(),
                        std::back_inserter(leaving));
    std::set_difference(admitted.begin(), admitted.end(), training.begin(), training.end(),
                        std::back_inserter(change.begun));
    const bool changes = !leaving.empty() || !change.begun.empty();
    if (changes && planned.round >= worker_.fixed_end) return false;
    const bool may_leave = std::all_of(leaving.begin(), leaving.end(), [&](AdapterId a) {
        return !table.has_batch(a, table[a].state.steps) ||
               (worker_.adapters.has_rungs() && worker_.job(a).trial);
    });
    const bool may_come = std::all_of(change.begun.begin(), change.begun.end(),
                                      [this](AdapterId a) { return may_begin(a); });
    if (!may_leave || !may_come) return false;
    std::set<AdapterId> resident = admitted;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        if (is_resident_still(a)) resident.insert(a);
    }
    change.resident.assign(resident.begin(), resident.end());
    if (!change.begun.empty()) {
        if (!fit_together(worker_.parts.job, worker_.parts.plan, change.resident)) return false;
        const bool copies = worker_.copies_fit;
        if (copies && !worker_.services->checkpoints.copies_would_fit()) return false;
        admitted_ = change.resident;
    }
    for (const AdapterId a : leaving) pause(a, planned, change);
    for (const AdapterId a : change.begun) begin(a, planned, change);
    for (const AdapterId a : admitted) worker_.adapters[a].state.status = AdapterStatus::running;
    release_ended(change);
    return true;
}

bool AdmissionService::may_begin(AdapterId adapter) const {
    const EvaluationService& evaluations = worker_.services->evaluations;
    if (!worker_.services->references.knows(adapter)) return false;
    const bool shares = worker_.parts.job.sweep &&
                        start_of(worker_.job(adapter), worker_.parts.plan.model) &&
                        evaluations.awaits_first(adapter);
    return !shares || evaluations.knows_start(adapter);
}

void AdmissionService::begin(AdapterId adapter, const Progress& planned, StreamChange& change) {
    StreamPart& stream = worker_.adapters[adapter].stream;
    const std::int32_t steps = planned.steps[index(adapter)];
    stream.join(planned.round, steps);
    if (!worker_.adapters.has_eval_samples(adapter)) return;
    EvaluationService& evaluations = worker_.services->evaluations;
    if (evaluations.awaits_first(adapter)) {
        if (!evaluations.knows_start(adapter)) {
            return worker_.journal.await_first_evaluation(adapter);
        }
        evaluations.take_start(adapter);
        if (!worker_.job(adapter).trial) {
            log::info(cat(worker_.job(adapter).name,
                          " starts as an adapter that was evaluated "
                          "before its first step: loss ",
                          format_fixed(worker_.state(adapter).last_eval_loss, 4)));
        }
    }
    if (steps > 0) return;
    change.known.push_back(adapter);
    stream.note_evaluation(0);
}

void AdmissionService::pause(AdapterId adapter, const Progress& planned, StreamChange& change) {
    AdapterRun& run = worker_.adapters[adapter];
    run.stream.leave_at(planned.steps[index(adapter)]);
    change.paused.push_back(adapter);
    if (!is_unfinished(run.state.status)) return;
    run.state.status = is_unjudged(run.state) ? AdapterStatus::parked : AdapterStatus::waiting;
}

/// Whether it has to stay in backend memory while it does not train.
bool AdmissionService::is_resident_still(AdapterId adapter) const {
    const AdapterRun& run = worker_.adapters[adapter];
    if (run.stream.written()) return worker_.services->texts.has_texts(adapter);
    if (!worker_.job(adapter).trial || run.stream.exported()) return true;
    const AdapterStatus status = run.state.status;
    const bool may_be_exported = status == AdapterStatus::running ||
                                 (is_exportable(status) && worker_.sweep.is_wanted(adapter));
    return may_be_exported || run.bests_to_write > 0 || !run.stream.stepped();
}

/// The memory of those that a checkpoint has and whose files are written; of trials, and on a
/// worker, of those whose end is recorded.
void AdmissionService::release_ended(StreamChange& change) const {
    const CheckpointService& checkpoints = worker_.services->checkpoints;
    if (checkpoints.is_writing()) return;
    const std::vector<AdapterId>& saved = checkpoints.ended();
    for (const AdapterId a : saved) {
        if (worker_.adapters[a].stream.written() && worker_.holds(a)) change.released.push_back(a);
    }
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const AdapterRun& run = worker_.adapters[a];
        const bool recorded = run.end_reported && worker_.sweep.records(a);
        const bool is_saved = std::find(saved.begin(), saved.end(), a) != saved.end();
        if (run.stream.stepped() && recorded && worker_.holds(a) && !is_saved) {
            change.released.push_back(a);
        }
    }
}

}  // namespace loratrain

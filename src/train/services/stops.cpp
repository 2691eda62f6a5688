#include "train/services/stops.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "io/files.h"
#include "plan/schedule/evaluations.h"
#include "train/services/services.h"

namespace loratrain {

void stop_adapter(Worker& worker, AdapterId adapter) {
    AdapterState& state = worker.adapters[adapter].state;
    if (!is_unfinished(state.status)) return;
    const bool trained = state.status == AdapterStatus::running;
    state.status = AdapterStatus::stopped;
    log::info(cat("adapter ", worker.job(adapter).name, " is stopped at step ", state.steps,
                  ", as requested"));
    if (state.steps == 0) return;
    if (trained && !all_are_evaluated(worker.parts.job, worker.adapters.round())) {
        worker.services->evaluations.evaluate({adapter});
        worker.services->evaluations.judge({adapter});
        worker.journal.flush();
    }
    if (worker.sweep.is_wanted(adapter)) worker.services->exports.write_now(adapter);
}

void fail_adapter(Worker& worker, AdapterId adapter, const std::string& why) {
    const std::string& name = worker.job(adapter).name;
    worker.adapters[adapter].state.status = AdapterStatus::failed;
    write_text_atomic(worker.parts.job.run.dir + "/adapters/" + name + "/FAILED", why + "\n");
    log::warn(cat("adapter ", name, " FAILED: ", why));
}

void stop_in_stream(Worker& worker, AdapterId adapter, const Progress& planned,
                    StreamChange& change) {
    AdapterRun& run = worker.adapters[adapter];
    if (run.state.status == AdapterStatus::waiting) return stop_adapter(worker, adapter);
    const std::int32_t steps = planned.steps[index(adapter)];
    const bool ends = planned.stopped[index(adapter)] || steps >= worker.total_steps(adapter);
    if (run.state.status != AdapterStatus::running || ends) return;
    run.stream.leave_at(steps);
    change.ended.push_back(adapter);
    if (!all_are_evaluated(worker.parts.job, planned.round) && run.state.steps < steps &&
        worker.adapters.has_eval_samples(adapter)) {
        worker.journal.await_evaluation(adapter, steps);
    }
}

bool stops_need_drain(const Worker& worker, const std::vector<AdapterId>& stops,
                      std::int32_t round) {
    std::set<AdapterId> staying;
    for (const AdapterId a : worker.adapters.in_stream()) {
        if (worker.adapters.trains_beyond(a, round)) staying.insert(a);
    }
    for (const AdapterId a : stops) {
        const AdapterState& state = worker.state(a);
        if (state.status == AdapterStatus::waiting && state.steps > 0) return true;
        staying.erase(a);
    }
    return staying.empty();
}

void end_trials_by_budget(Worker& worker) {
    const std::string why = budget_text(*worker.parts.job.sweep);
    log::info(why);
    std::vector<AdapterId> under_way;
    for (const AdapterId a : worker.adapters.all()) {
        AdapterState& state = worker.adapters[a].state;
        if (!worker.job(a).trial || !is_unfinished(state.status)) continue;
        if (state.status == AdapterStatus::running && state.steps > 0) under_way.push_back(a);
        state.status = AdapterStatus::stopped;
        state.reason = why;
    }
    worker.services->evaluations.evaluate(under_way);
}

}  // namespace loratrain

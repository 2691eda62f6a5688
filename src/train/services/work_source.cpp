#include "train/services/work_source.h"

#include "base/log.h"
#include "plan/schedule/evaluations.h"
#include "train/services/services.h"

namespace loratrain {

void stop_adapter(Worker& worker, AdapterId adapter) {
    AdapterState& state = worker.adapters[adapter].state;
    if (!is_unfinished(state.status)) return;
    const bool trained = state.status == AdapterStatus::running;
    state.status = AdapterStatus::stopped;
    log::info(cat("adapter ", worker.job(adapter).name, " is stopped at step ", state.steps,
                  ", as ordered"));
    if (state.steps == 0) return;
    if (trained && !all_are_evaluated(worker.parts.job, worker.adapters.round())) {
        worker.services->evaluations.evaluate({adapter});
        worker.services->evaluations.judge({adapter});
        worker.journal.flush();
    }
    if (worker.sweep.is_wanted(adapter)) worker.services->exports.write_now(adapter);
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

void warn_of_additions(const RunParts& parts, const InboxFile& file, const JobTail& tail) {
    for (const std::string& text :
         job_warnings(parts.job, parts.plan, parts.files, parts.base, tail)) {
        log::warn(cat(file.path, ": ", text));
    }
}

}  // namespace loratrain

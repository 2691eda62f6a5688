#include "train/services/steps.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "train/services/services.h"
#include "train/services/stops.h"

namespace loratrain {

bool StepService::needs_drain(std::int32_t /*round*/) {
    const std::vector<AdapterId> running = worker_.adapters.running();
    return std::any_of(running.begin(), running.end(), [this](AdapterId a) {
        return worker_.state(a).bad_steps_in_row >= bad_steps_allowed;
    });
}

void StepService::on_step(const BatchResult& result) {
    const BatchPlan& batch = result.batch;
    AdapterState& adapter = worker_.adapters[batch.adapter].state;
    const double loss = batch.denominator > 0.0 ? result.loss_sum / batch.denominator : 0.0;
    const bool finite = std::isfinite(result.grad_sumsq);
    take_step(batch.step + 1, loss, finite, adapter);
    if (!finite) {
        log::warn(cat("adapter ", worker_.job(batch.adapter).name, ": gradient of step ",
                      adapter.steps, " is not finite; its update is skipped, the others go on"));
    }
    if (worker_.adapters.is_evaluated_behind(batch)) {
        worker_.journal.await_evaluation(batch.adapter, batch.step + 1);
    }
    worker_.journal.batch_done(result, worker_.services->arrivals.stale_before(batch));
}

void StepService::decide_end(AdapterId id) {
    AdapterRun& run = worker_.adapters[id];
    const std::int32_t total_steps = worker_.total_steps(id);
    const std::string failure = failure_reason(run.state, total_steps);
    const std::string& name = worker_.job(id).name;
    if (!failure.empty()) {
        fail_adapter(worker_, id, failure);
    } else if (run.state.steps >= total_steps) {
        run.state.status = AdapterStatus::done;
    } else if (run.stream.last_step() && worker_.adapters.steps_to_come(id) == 0) {
        run.state.status = AdapterStatus::stopped;
        log::info(cat("adapter ", name, " is stopped at step ", run.state.steps, ", as requested"));
    }
}

}  // namespace loratrain

#include "train/worker_loop.h"

#include "base/activity.h"
#include "base/log.h"
#include "base/text.h"

namespace loratrain {

WorkerLoop::OwnDispatcher::OwnDispatcher(Worker& worker)
    : dispatcher({worker.parts.job, worker.parts.plan, worker.parts.datasets}, worker),
      link(dispatcher) {}

WorkerLoop::WorkerLoop(const RunParts& parts, WorkerRanks& ranks)
    : worker_(parts, ranks),
      own_(worker_.is_joint() ? std::optional<OwnDispatcher>(std::in_place, worker_)
                              : std::nullopt),
      services_(worker_, own_ ? own_->link : *parts.dispatcher) {}

void WorkerLoop::restore(const RunState& state, bool set_back) {
    worker_.adapters.restore(state);
    worker_.clock.continue_from(state.elapsed_seconds);
    set_back_ = set_back;
}

ExitCode WorkerLoop::run(int signal) {
    DispatchService& dispatch = services_.dispatch;
    dispatch.begin(signal, set_back_);
    while (dispatch.begin_turn()) {
        services_.rollouts.write();
        services_.step_exports.write_waiting();
        services_.admission.admit();
        services_.references.refer_newcomers();
        services_.evaluations.evaluate_newcomers();
        if (dispatch.rest_without_work()) continue;
        const std::vector<AdapterId> trained = train();
        end_adapters(trained);
        dispatch.after(trained);
    }
    services_.exports.log_written();
    log_planning();
    return dispatch.end();
}

/// One stream; returns who trained in it.
std::vector<AdapterId> WorkerLoop::train() {
    if (worker_.adapters.running().empty()) return {};
    services_.step_exports.write_missing(worker_.adapters.running());
    worker_.adapters.begin_stream();
    const std::int32_t round = worker_.stream.run();
    for (const AdapterId a : worker_.adapters.running()) services_.steps.decide_end(a);
    worker_.adapters.end_stream(round);
    services_.step_exports.write_missing(worker_.adapters.in_stream());
    services_.step_exports.finish();
    services_.exports.finish();
    services_.bests.write(true);  // those that the checkpoint under way has to have
    services_.checkpoints.finish();
    services_.bests.write(true);  // those that were found behind it
    services_.redeployment.finish();
    return worker_.adapters.in_stream();
}

/// Evaluates and exports those that trained, where that was not done in the stream.
void WorkerLoop::end_adapters(const std::vector<AdapterId>& trained) {
    std::vector<AdapterId> stopped;
    for (const AdapterId a : trained) {
        const bool was_stopped = worker_.state(a).status == AdapterStatus::stopped;
        if (was_stopped && !worker_.adapters.is_evaluated(a)) stopped.push_back(a);
    }
    services_.evaluations.evaluate(stopped);
    services_.evaluations.judge(stopped);
    activity::begin(activity::Task::end_window);
    worker_.journal.flush();
    for (const AdapterId a : trained) {
        const bool exportable = is_exportable(worker_.state(a).status);
        if (exportable && worker_.sweep.is_wanted(a)) services_.exports.write_now(a);
    }
    if (worker_.parts.job.eval.generate.wanted()) services_.texts.write(trained);
    worker_.parts.stop.window_took(worker_.stream.seconds_since_last_window());
}

void WorkerLoop::log_planning() const {
    const PlanningRecord& planning = worker_.stream.planning();
    if (planning.windows == 0) return;
    log::info(cat("planned ", planning.windows, planning.windows == 1 ? " window" : " windows",
                  " of ", planning.streams, planning.streams == 1 ? " stream" : " streams", " in ",
                  format_fixed(planning.seconds, 2), " s; training waited ",
                  format_fixed(planning.waited_seconds, 2), " s for it"));
    const std::string fillings = to_text(planning.fillings);
    if (!fillings.empty()) log::info("packed " + fillings);
    if (!worker_.is_joint() && makespan().compared()) {
        log::info("training " + makespan().text());
    }
}

}  // namespace loratrain

#include "train/trainer.h"

#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "measure/device_sampler.h"
#include "measure/measured_trace.h"
#include "train/command.h"
#include "train/orders/stop_request.h"

namespace loratrain {

Trainer::Trainer(const TrainerParts& parts)
    : parts_(parts), channel_(parts.mpi), executor_(parts_) {
    if (parts.mpi.is_root()) lead_.emplace(parts_, executor_, channel_);
}

void Trainer::restore(const RunState& state, bool set_back) {
    if (lead_) lead_->loop.restore(state, set_back);
}

ExitCode Trainer::run() {
    try {
        const int signal = stop_signal_of_any_rank(parts_.mpi);
        const ExitCode code = lead_ ? lead(signal) : follow(signal);
        if (parts_.job.logging.trace) {
            write_trace(parts_.mpi, parts_.job, parts_.plan, parts_.run.recorder());
        }
        return code;
    } catch (const std::exception& error) {
        log::error(cat("on host ", parts_.mpi.host(), ", ", to_string(activity::now()), ": ",
                       error.what(), "; the same command continues from the last checkpoint"));
        if (lead_) lead_->loop.record_failure(error.what());
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

ExitCode Trainer::lead(int signal) {
    const ExitCode code = lead_->loop.run(signal);
    goes_on_ = lead_->loop.redeploys();
    return code;
}

ExitCode Trainer::follow(int signal) {
    CommandReader commands(channel_);
    const auto look_around = [&] {
        if (parts_.sampler != nullptr) parts_.sampler->look();
        if (stop_signal() == signal) return;
        signal = stop_signal();
        channel_.report(signal);
    };
    const auto meanwhile = [&] {
        commands.look();
        look_around();
    };
    const auto between_windows = [&] {
        look_around();
        executor_.go_on_reading();
    };
    PipelineRunner::Hooks hooks{{}, meanwhile, {}};
    const auto tell = [&](Report report) {
        send_as_messages(std::move(report),
                         [&](std::string text) { channel_.send_report(std::move(text)); });
    };
    if (learns_evaluations(parts_.plan, parts_.mpi.rank())) {
        hooks.on_evaluation = [&](const EvalResult& result) {
            tell(std::vector<EvalResult>{result});
        };
    }
    for (;;) {
        activity::begin(activity::Task::follow);
        const WorkerCommand command = commands.next(between_windows);
        if (const auto* finish = std::get_if<Finish>(&command)) {
            goes_on_ = finish->goes_on;
            return finish->code;
        }
        executor_.perform(command, hooks, tell);
    }
}

RunState Trainer::state() const {
    return lead_ ? lead_->loop.state() : RunState{};
}

std::string Trainer::stop_reason() const {
    return lead_ ? lead_->loop.stop_reason() : "";
}

std::string Trainer::makespan_text() const {
    return lead_ && lead_->loop.makespan().compared() ? lead_->loop.makespan().text() : "";
}

}  // namespace loratrain

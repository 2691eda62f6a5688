#include "train/trainer.h"

#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "measure/device_sampler.h"
#include "train/directive_reader.h"
#include "train/orders/stop_request.h"

namespace loratrain {

Trainer::Trainer(const TrainerParts& parts)
    : parts_(parts), channel_(parts.mpi), performer_(parts_) {
    if (parts.mpi.is_root()) conductor_.emplace(parts_, performer_, channel_);
}

void Trainer::restore(const RunState& state, bool set_back) {
    if (conductor_) conductor_->restore(state, set_back);
}

ExitCode Trainer::run() {
    try {
        const int signal = stop_signal_of_any_rank(parts_.mpi);
        return conductor_ ? conduct(signal) : follow(signal);
    } catch (const std::exception& error) {
        log::error(cat("on host ", parts_.mpi.host(), ", ", to_string(activity::now()), ": ",
                       error.what(), "; the same command continues from the last checkpoint"));
        if (conductor_) conductor_->record_failure(error.what());
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

ExitCode Trainer::conduct(int signal) {
    const ExitCode code = conductor_->run(signal);
    goes_on_ = conductor_->goes_on();
    return code;
}

ExitCode Trainer::follow(int signal) {
    DirectiveReader directives(channel_);
    const auto look_around = [&] {
        if (parts_.sampler != nullptr) parts_.sampler->look();
        if (stop_signal() == signal) return;
        signal = stop_signal();
        channel_.report(signal);
    };
    const auto meanwhile = [&] {
        directives.look();
        look_around();
    };
    const auto between_windows = [&] {
        look_around();
        performer_.go_on_reading();
    };
    PipelineRunner::Hooks hooks{{}, meanwhile, {}};
    const auto tell = [&](std::string text) { channel_.tell(std::move(text)); };
    if (learns_evaluations(parts_.plan, parts_.mpi.rank())) {
        hooks.on_evaluation = [&](const EvalResult& result) { tell(to_text({&result, 1})); };
    }
    for (;;) {
        activity::begin(activity::Task::follow);
        const Directive directive = directives.next(between_windows);
        if (const auto* finish = std::get_if<Finish>(&directive)) {
            goes_on_ = finish->goes_on;
            return finish->code;
        }
        performer_.perform(directive, hooks, tell);
    }
}

RunState Trainer::state() const {
    return conductor_ ? conductor_->state() : RunState{};
}

std::string Trainer::stop_reason() const {
    return conductor_ ? conductor_->stop_reason() : "";
}

std::string Trainer::makespan_text() const {
    return conductor_ && conductor_->makespan().compared() ? conductor_->makespan().text() : "";
}

}  // namespace loratrain

#include "measure/phase_labels.h"

#include <numeric>

namespace loratrain {

namespace {

RunPhase phase_of(ActionKind kind, bool evaluation) {
    switch (kind) {
        case ActionKind::forward:
            return evaluation ? RunPhase::evaluation : RunPhase::forward;
        case ActionKind::backward:
            return RunPhase::backward;
        case ActionKind::step:
            return RunPhase::optimizer;
        default:
            return RunPhase::communication;
    }
}

/// None: an action of the pipeline.
std::optional<RunPhase> phase_of(const activity::State& state) {
    using activity::Task;
    switch (state.task) {
        case Task::plan:
            return RunPhase::planning;
        case Task::follow:
            return RunPhase::waiting;
        case Task::checkpoint:
            return RunPhase::checkpoint;
        case Task::export_adapter:
            return RunPhase::exporting;
        case Task::generate:
            return RunPhase::texts;
        case Task::set_up:
        case Task::end_window:
        case Task::admit:
        case Task::finish:
            return state.waiting ? RunPhase::waiting : RunPhase::other;
        default:
            return std::nullopt;
    }
}

}  // namespace

void PhaseLabels::begin_action(ActionKind kind, bool evaluation) {
    kind_ = kind;
    now_ = *(action_ = phase_of(kind, evaluation));
}

void PhaseLabels::end_action() {
    kind_.reset();
    action_.reset();
    resume();
}

/// Inside of a computation only a send is waited for, before a step what replicas sum.
void PhaseLabels::begin_wait() {
    const bool receives = kind_ && traits_of(*kind_).role == ActionRole::receive;
    now_ = *(wait_ = receives ? RunPhase::waiting : RunPhase::communication);
}

void PhaseLabels::end_wait() {
    wait_.reset();
    resume();
}

void PhaseLabels::resume() {
    now_ = amid_actions() ? phase_of_actions() : RunPhase::other;
}

bool PhaseLabels::follow(const activity::State& state) {
    const std::optional<RunPhase> phase = phase_of(state);
    const RunPhase before = now_;
    if (phase) {
        now_ = *phase;
    } else if (amid_actions()) {
        now_ = phase_of_actions();
    } else {
        now_ = state.waiting ? RunPhase::waiting : RunPhase::other;
    }
    return now_ != before;
}

double PhaseAccount::total() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void PhaseAccount::add(const std::vector<double>& points, const std::vector<RunPhase>& phases) {
    for (std::size_t i = 0; i + 1 < points.size(); ++i) {
        seconds[static_cast<std::size_t>(phases[i])] += points[i + 1] - points[i];
    }
}

}  // namespace loratrain

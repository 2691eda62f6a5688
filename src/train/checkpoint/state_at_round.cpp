#include "train/checkpoint/state_at_round.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

void copy_evaluations(const AdapterState& from, AdapterState& to) {
    to.first_eval_loss = from.first_eval_loss;
    to.last_eval_loss = from.last_eval_loss;
    to.first_exact_match = from.first_exact_match;
    to.last_exact_match = from.last_exact_match;
    to.best_eval_loss = from.best_eval_loss;
    to.best_step = from.best_step;
    to.evaluations_without_gain = from.evaluations_without_gain;
}

}  // namespace

StateAtRound::StateAtRound(std::int32_t round, const std::vector<Goal>& goals) : round_(round) {
    for (const Goal& goal : goals) rows_.push_back({goal, false, {}});
}

void StateAtRound::note(AdapterId adapter, const AdapterState& now, double elapsed_seconds) {
    Row& row = rows_[index(adapter)];
    if (row.stepped || now.steps != row.goal.steps) return;
    row.stepped = true;
    row.state = now;
    elapsed_seconds_ = std::max(elapsed_seconds_, elapsed_seconds);
}

void StateAtRound::note_evaluation(AdapterId adapter, std::int32_t step, const AdapterState& now) {
    Row& row = rows_[index(adapter)];
    if (step > row.goal.steps) return;
    copy_evaluations(now, row.state);
    if (step >= row.goal.awaited_evaluation) row.goal.awaited_evaluation = -1;
}

bool StateAtRound::is_known() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) {
        return row.stepped && row.goal.awaited_evaluation < 0;
    });
}

std::vector<AdapterId> StateAtRound::ended() const {
    std::vector<AdapterId> ended;
    for (std::size_t a = 0; a < rows_.size(); ++a) {
        if (rows_[a].goal.ended) ended.push_back(static_cast<AdapterId>(a));
    }
    return ended;
}

RunState StateAtRound::state(const RunState& now) const {
    LORATRAIN_CHECK(is_known(), "the state at round ", round_, " is not known yet");
    RunState state{round_, elapsed_seconds_, {}, now.deployment};
    for (std::size_t a = 0; a < rows_.size(); ++a) {
        state.adapters.push_back(rows_[a].goal.ended ? now.adapters[a] : rows_[a].state);
    }
    return state;
}

}  // namespace loratrain

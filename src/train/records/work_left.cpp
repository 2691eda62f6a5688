#include "train/records/work_left.h"

#include <algorithm>

#include "plan/schedule/admission.h"

namespace loratrain {

WorkCounter::WorkCounter(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets)
    : job_(job), plan_(plan), datasets_(datasets) {
    add_adapters();
}

void WorkCounter::add_adapters() {
    if (datasets_.empty()) return;  // not the root
    for (std::size_t i = tokens_per_step_.size(); i < job_.adapters.size(); ++i) {
        const std::int64_t tokens = datasets_[index(job_.adapters[i].dataset)].train_tokens();
        tokens_per_step_.push_back(static_cast<double>(tokens) / plan_.adapters[i].steps_per_epoch);
    }
}

WorkLeft WorkCounter::left(const RunState& state) const {
    std::int32_t most = 0;
    std::int32_t sum = 0;
    WorkLeft left;
    for (std::size_t i = 0; i < state.adapters.size(); ++i) {
        if (!is_unfinished(state.adapters[i].status)) continue;
        const std::int32_t steps = plan_.adapters[i].total_steps - state.adapters[i].steps;
        most = std::max(most, steps);
        sum += steps;
        left.tokens += tokens_per_step_[i] * steps;
    }
    left.rounds = most_admitted(job_) == 1 ? sum : most;
    return left;
}

}  // namespace loratrain

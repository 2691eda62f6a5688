#include "plan/schedule/list_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
constexpr double nanoseconds = 1e9;

}  // namespace

void add_times(PipelineLoad& load, const CostModel& costs, std::span<const StagePlan> stages,
               Recompute recompute, const AdapterLoads& microbatch) {
    for (const StagePlan& stage : stages) {
        load.forward.push_back(
            std::llround(nanoseconds * forward_seconds(costs, stage, microbatch)));
        load.backward.push_back(
            std::llround(nanoseconds * backward_seconds(costs, stage, microbatch, recompute)));
    }
}

void drop_below(PipelineLoad& load, std::int32_t number) {
    const std::int32_t count = number - load.first;
    const auto times = std::ptrdiff_t{count} * load.stages;
    load.forward.erase(load.forward.begin(), load.forward.begin() + times);
    load.backward.erase(load.backward.begin(), load.backward.begin() + times);
    load.required.erase(load.required.begin(), load.required.begin() + count);
    load.first = number;
}

ListSchedule::ListSchedule(const PipelineLoad& load)
    : load_(load), stages_(static_cast<std::size_t>(load.stages)) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        const std::int32_t limit = load.max_in_flight - static_cast<std::int32_t>(s);
        stages_[s].limit =
            load.forward_only ? std::numeric_limits<std::int32_t>::max() : std::max(1, limit);
    }
}

void ListSchedule::follow_load() {
    const auto gone = std::ptrdiff_t{load_.first - first_} * load_.stages;
    forward_end_.erase(forward_end_.begin(), forward_end_.begin() + gone);
    backward_end_.erase(backward_end_.begin(), backward_end_.begin() + gone);
    first_ = load_.first;
    count_ = first_ + static_cast<std::int32_t>(load_.required.size());
    forward_end_.resize(load_.forward.size(), never);
    backward_end_.resize(load_.backward.size(), never);
    for (Stage& stage : stages_) stage.woken = true;
}

void ListSchedule::advance(bool to_the_end, ComputeOrder* order) {
    follow_load();
    while (true) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            if (stages_[s].woken) start_ready(s, order);
            stages_[s].woken = false;
        }
        // The next forward of the first stage may be of a microbatch that is not known yet.
        if (!to_the_end && stages_.front().forwarded == count_) return;
        const std::int64_t next = next_end();
        if (next == never) break;
        now_ = next;
    }
    check_finished();
}

void ListSchedule::start_ready(std::size_t s, ComputeOrder* order) {
    Stage& stage = stages_[s];
    if (stage.busy_until > now_) return;
    const bool forward = forward_ready(s);
    const bool backward = backward_ready(s) && !(s == 0 && forward);
    if (!forward && !backward) return;
    const std::int32_t microbatch = backward ? stage.backwarded++ : stage.forwarded++;
    const std::size_t i = at(microbatch, s);
    if (backward) {
        start(stage, load_.backward[i], backward_end_[i]);
    } else {
        start(stage, load_.forward[i], forward_end_[i]);
        const std::int32_t held = load_.forward_only ? 1 : stage.forwarded - stage.backwarded;
        stage.peak = std::max(stage.peak, held);
    }
    if (order != nullptr) (*order)[s].push_back({backward, microbatch});
}

void ListSchedule::start(Stage& stage, std::int64_t time, std::int64_t& end) const {
    const std::int64_t positive = std::max<std::int64_t>(time, 1);
    stage.busy += positive;
    stage.busy_until = end = now_ + positive;
}

bool ListSchedule::forward_ready(std::size_t s) const {
    const Stage& stage = stages_[s];
    if (stage.forwarded == count_) return false;
    if (stage.forwarded - stage.backwarded >= stage.limit) return false;
    if (s > 0) return forward_end_[at(stage.forwarded, s - 1)] <= now_;
    return load_.forward_only ||
           stage.backwarded >=
               load_.required[static_cast<std::size_t>(stage.forwarded - load_.first)];
}

bool ListSchedule::backward_ready(std::size_t s) const {
    const Stage& stage = stages_[s];
    if (load_.forward_only || stage.backwarded == stage.forwarded) return false;
    return s + 1 == stages_.size() || backward_end_[at(stage.backwarded, s + 1)] <= now_;
}

std::int64_t ListSchedule::next_end() {
    std::int64_t next = never;
    for (const Stage& stage : stages_) {
        if (stage.busy_until > now_) next = std::min(next, stage.busy_until);
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (stages_[s].busy_until != next) continue;
        stages_[s].woken = true;
        if (s > 0) stages_[s - 1].woken = true;
        if (s + 1 < stages_.size()) stages_[s + 1].woken = true;
    }
    return next;
}

void ListSchedule::check_finished() const {
    for (const Stage& stage : stages_) {
        LORATRAIN_CHECK(
            stage.forwarded == count_ && (load_.forward_only || stage.backwarded == count_),
            "the pipeline comes to a halt");
    }
}

std::int32_t ListSchedule::ended() const {
    return load_.forward_only ? stages_.back().forwarded : stages_.front().backwarded;
}

std::int64_t ListSchedule::busy() const {
    std::int64_t sum = 0;
    for (const Stage& stage : stages_) sum += stage.busy;
    return sum;
}

}  // namespace loratrain

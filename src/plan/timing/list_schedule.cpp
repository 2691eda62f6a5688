#include "plan/timing/list_schedule.h"

#include <cmath>
#include <tuple>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr double nanoseconds = 1e9;

}  // namespace

bool compute_alike(const StagePlan& a, const StagePlan& b) {
    const auto read = [](const StagePlan& stage) {  // as pass_seconds() does
        return std::tie(stage.layer_count, stage.has_embedding, stage.has_head,
                        stage.first_layer_adapters, stage.last_layer_adapters,
                        stage.resident_layers, stage.kept_layers, stage.offloaded_layers);
    };
    return read(a) == read(b);
}

void add_times(PipelineLoad& load, const CostModel& costs, std::span<const StagePlan> stages,
               Recompute recompute, const AdapterLoads& microbatch, bool evaluation) {
    const StagePlan* before = nullptr;
    for (const StagePlan& stage : stages) {
        if (before != nullptr && compute_alike(stage, *before)) {
            load.forward.push_back(load.forward.back());
            load.backward.push_back(load.backward.back());
        } else {
            const PassSeconds passes =
                pass_seconds(costs, stage, microbatch, recompute, evaluation);
            load.forward.push_back(std::llround(nanoseconds * passes.forward));
            load.backward.push_back(std::llround(nanoseconds * passes.backward));
        }
        before = &stage;
    }
}

void drop_below(PipelineLoad& load, std::int32_t number) {
    const std::int32_t count = number - load.first;
    const auto times = std::ptrdiff_t{count} * load.stages;
    load.forward.erase(load.forward.begin(), load.forward.begin() + times);
    load.backward.erase(load.backward.begin(), load.backward.begin() + times);
    load.required.erase(load.required.begin(), load.required.begin() + count);
    if (!load.evaluation.empty()) {
        load.evaluation.erase(load.evaluation.begin(), load.evaluation.begin() + count);
    }
    load.first = number;
}

ListSchedule::ListSchedule(const PipelineLoad& load)
    : load_(load), stages_(static_cast<std::size_t>(load.stages)), ends_(stages_.size()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        const std::int32_t limit = load.max_in_flight - static_cast<std::int32_t>(s);
        stages_[s].limit = std::max(1, limit);
    }
}

void ListSchedule::follow() {
    count_ = load_.first + static_cast<std::int32_t>(load_.required.size());
    for (std::size_t s = 0; s < stages_.size(); ++s) wake(s);
}

void ListSchedule::advance(bool to_the_end, ComputeOrder* order, std::int32_t least_backwards,
                           std::int32_t least_forwards) {
    follow();
    const Stage& first = stages_.front();
    do {
        start_woken(order);
        // The next forward of the first stage may be of a microbatch that is not known yet.
        const bool ahead = first.forwarded == count_ && first.backwarded >= least_backwards &&
                           stages_.back().forwards_ended >= least_forwards;
        if (ahead && !to_the_end) return;
    } while (go_to_next_end());
    check_finished();
}

void ListSchedule::start_woken(ComputeOrder* order) {
    for (const std::size_t s : woken_) start_ready(s, order);
    woken_.clear();
}

void ListSchedule::wake(std::size_t s) {
    if (std::exchange(stages_[s].woken, true)) return;
    woken_.push_back(s);
}

void ListSchedule::start_ready(std::size_t s, ComputeOrder* order) {
    Stage& stage = stages_[s];
    stage.woken = false;
    if (stage.running != Task::none) return;
    const bool forward = forward_ready(s);
    const bool backward = backward_ready(s) && !(s == 0 && forward);
    if (!forward && !backward) return;
    const std::int32_t microbatch = backward ? stage.backwarded++ : stage.forwarded++;
    if (backward) {
        start(s, Task::backward, load_.backward[at(microbatch, s)]);
    } else {
        start(s, Task::forward, load_.forward[at(microbatch, s)]);
        stage.peak = std::max(stage.peak, stage.forwarded - stage.backwarded);
    }
    if (order != nullptr) (*order)[s].push_back({backward, microbatch});
}

void ListSchedule::start(std::size_t s, Task task, std::int64_t time) {
    const std::int64_t positive = std::max<std::int64_t>(time, 1);
    stages_[s].running = task;
    stages_[s].busy += positive;
    ends_.set(s, now_ + positive);
}

bool ListSchedule::forward_ready(std::size_t s) const {
    const Stage& stage = stages_[s];
    if (stage.forwarded == count_) return false;
    if (stage.forwarded - stage.backwarded >= stage.limit) return false;
    if (s > 0) return stage.forwarded < stages_[s - 1].forwards_ended;
    return stage.backwarded >=
           load_.required[static_cast<std::size_t>(stage.forwarded - load_.first)];
}

bool ListSchedule::backward_ready(std::size_t s) const {
    const Stage& stage = stages_[s];
    if (stage.backwarded == stage.forwarded || load_.evaluates(stage.backwarded)) return false;
    return s + 1 == stages_.size() || stage.backwarded < stages_[s + 1].backwards_ended;
}

/// False when nothing is running.
bool ListSchedule::go_to_next_end() {
    const std::int64_t next = ends_.first();
    if (next == EndTimes::never) return false;
    now_ = next;
    ends_.each_at(next, [this](std::size_t s) { end_task(s); });
    return true;
}

void ListSchedule::end_task(std::size_t s) {
    Stage& stage = stages_[s];
    ends_.set(s, EndTimes::never);
    ++(stage.running == Task::forward ? stage.forwards_ended : stage.backwards_ended);
    stage.running = Task::none;
    pass_evaluations(stage);
    wake(s);
    if (s > 0) wake(s - 1);
    if (s + 1 < stages_.size()) wake(s + 1);
}

void ListSchedule::pass_evaluations(Stage& stage) const {
    while (stage.backwarded < stage.forwards_ended && load_.evaluates(stage.backwarded)) {
        ++stage.backwarded;
        ++stage.backwards_ended;
    }
}

void ListSchedule::check_finished() const {
    for (const Stage& stage : stages_) {
        LORATRAIN_CHECK(stage.forwarded == count_ && stage.backwarded == count_,
                        "the pipeline comes to a halt");
    }
}

std::int32_t ListSchedule::ended() const {
    std::int32_t least = count_;
    for (const Stage& stage : stages_) least = std::min(least, stage.backwarded);
    return least;
}

std::int64_t ListSchedule::busy() const {
    std::int64_t sum = 0;
    for (const Stage& stage : stages_) sum += stage.busy;
    return sum;
}

}  // namespace loratrain

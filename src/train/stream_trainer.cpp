#include "train/stream_trainer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/log.h"

namespace loratrain {

namespace {

constexpr std::int32_t first_rounds = 2;  // nothing is known of their time
constexpr std::int32_t most_rounds = 64;
constexpr double window_seconds = 2.0;  // an order or a stop waits for about two windows
constexpr int most_planning_threads = 4;
constexpr double long_window = 2.0 * window_seconds;
constexpr double shortest_lead = 1.0;
constexpr double lead_share = 0.125;  // of a window: it may take less than expected
constexpr double planning_times = 4.0;

int planning_threads() {
    const auto processors = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(processors / 2, 1, most_planning_threads);
}

}  // namespace

double planning_delay(double expected, double planning) {
    if (expected <= long_window) return 0.0;
    const double lead = std::max({shortest_lead, lead_share * expected, planning_times * planning});
    return std::max(0.0, expected - lead);
}

StreamTrainer::StreamTrainer(const TrainerParts& parts, const AdapterTable& adapters,
                             Performer& performer, DirectiveChannel& channel, Journal& journal)
    : parts_(parts),
      adapters_(adapters),
      performer_(performer),
      channel_(channel),
      journal_(journal),
      makespan_(parts.job, parts.plan) {}

std::int32_t StreamTrainer::run(std::int32_t last_round, const Hooks& hooks) {
    StreamPlanner planner(parts_.job, parts_.plan, parts_.datasets, adapters_.progress(),
                          planning_threads(), planning_);
    const Clock::time_point started = window_started_ = Clock::now();
    const PipelineRunner::Hooks while_training{[&](const BatchResult& result) {
                                                   ++batches_done_;
                                                   hooks.on_batch(result);
                                               },
                                               [&] { look_after(planner); }};
    journal_.stream_started();
    const std::int64_t batches_before = batches_done_;
    const auto active = static_cast<std::int64_t>(adapters_.running().size());
    planner.start(std::min(first_rounds, last_round - adapters_.round()), false);
    for (bool more = true; more;) {
        const PlannedWindow planned = next_window(planner);
        more = !planned.window.common().drains;
        const std::int64_t rounds =
            (batches_done_ - batches_before) / std::max<std::int64_t>(1, active);
        if (rounds > 0) seconds_per_round_ = seconds_since(started) / static_cast<double>(rounds);
        if (more) {
            plan_next_ = [&] { plan_next(planner, last_round, hooks); };
            const double delay = planning_delay(seconds_per_round_ * planned.window.common().rounds,
                                                planner.planning_seconds());
            plan_next_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(delay));
            look_after(planner);
        }
        train(planned.window, while_training);
        if (plan_next_) std::exchange(plan_next_, {})();
    }
    activity::begin(activity::Task::end_window);
    return planner.round();
}

void StreamTrainer::plan_next(StreamPlanner& planner, std::int32_t last_round, const Hooks& hooks) {
    const std::int32_t left = std::max(0, last_round - planner.round());
    if (left == 0 || hooks.drain_wanted()) return planner.start(0, true);
    const std::int32_t rounds = rounds_of_next();
    planner.start(std::min(rounds, left), rounds >= left);
}

std::int32_t StreamTrainer::rounds_of_next() const {
    if (seconds_per_round_ <= 0) return first_rounds;
    const double seconds = std::min(window_seconds, parts_.stop.seconds_left());
    return static_cast<std::int32_t>(
        std::clamp(seconds / seconds_per_round_, 1.0, double{most_rounds}));
}

PlannedWindow StreamTrainer::next_window(StreamPlanner& planner) {
    activity::begin(activity::Task::plan);
    if (!posted_) post(planner.take());
    PlannedWindow next = std::move(*posted_);
    posted_.reset();
    return next;
}

void StreamTrainer::post(PlannedWindow window) {
    channel_.post(window.directive);
    posted_ = std::move(window);
}

/// Between actions.
void StreamTrainer::look_after(StreamPlanner& planner) {
    channel_.progress();
    journal_.beat();
    if (plan_next_ && Clock::now() >= plan_next_at_) std::exchange(plan_next_, {})();
    if (planner.ready()) post(planner.take());
}

void StreamTrainer::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    journal_.window_started(window.common());
    performer_.train(window, hooks);
    const double seconds = seconds_since(window_started_);
    window_started_ = Clock::now();
    makespan_.add(window, seconds);
    parts_.stop.window_took(2.0 * seconds);
    const std::string notice = parts_.stop.interrupt_notice();
    if (!notice.empty()) log::info(notice);
    journal_.flush();
}

}  // namespace loratrain

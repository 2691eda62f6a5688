#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "io/files.h"
#include "train/learning_rate.h"
#include "train/trainer.h"

/// One stream of windows: from an empty pipeline to the next.

namespace loratrain {

namespace {

constexpr std::int32_t first_rounds = 2;  // nothing is known of their time
constexpr std::int32_t most_rounds = 64;
constexpr double window_seconds = 2.0;  // an order or a stop waits for about two windows
constexpr int most_planning_threads = 4;

int planning_threads() {
    const auto processors = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(processors / 2, 1, most_planning_threads);
}

}  // namespace

void Trainer::train_stream() {
    StreamPlanner planner(parts_.job, parts_.plan, parts_.datasets, progress(), planning_threads(),
                          planning_);
    last_round_ = state_.round + rounds_to_event();
    stream_started_ = window_started_ = std::chrono::steady_clock::now();
    progress_.training_resumed(elapsed());
    const std::int64_t batches_before = batches_done_;
    const auto active = static_cast<std::int64_t>(running_adapters().size());
    planner.start(std::min(first_rounds, last_round_ - state_.round), false);
    for (bool more = true; more;) {
        const PlannedWindow planned = next_window(planner);
        more = !planned.window.drains;
        const std::int64_t rounds =
            (batches_done_ - batches_before) / std::max<std::int64_t>(1, active);
        if (rounds > 0) {
            seconds_per_round_ = seconds_since(stream_started_) / static_cast<double>(rounds);
        }
        if (more) plan_next(planner);
        progress_.window_started(planned.window);
        parts_.loader.start(planned.window);
        parts_.runner.run(planned.window, parts_.loader,
                          {[this](const BatchResult& result) { on_batch(result); },
                           [this, &planner] { post_if_ready(planner); }});
        const double seconds = seconds_since(window_started_);
        window_started_ = std::chrono::steady_clock::now();
        makespan_.add(planned.window, seconds);
        parts_.stop.window_took(2.0 * seconds);
        flush_metrics();
    }
    activity::begin(activity::Task::end_window);
    settle_stream(planner.round());
}

Progress Trainer::progress() const {
    Progress progress;
    progress.round = state_.round;
    for (const AdapterState& adapter : state_.adapters) {
        progress.steps.push_back(adapter.steps);
        progress.stopped.push_back(adapter.status != AdapterStatus::running);
    }
    return progress;
}

/// Rounds until something is known to need an empty pipeline.
std::int32_t Trainer::rounds_to_event() const {
    std::int32_t rounds = std::numeric_limits<std::int32_t>::max() - state_.round;
    for (const int every : {parts_.job.checkpoint.every_steps, parts_.job.eval.every_steps}) {
        if (every > 0) rounds = std::min(rounds, every - state_.round % every);
    }
    rounds = std::min(rounds, parts_.stop.rounds_left(state_.round).value_or(rounds));
    for (const AdapterId a : running_adapters()) {
        const std::int32_t left =
            parts_.plan.adapters[index(a)].total_steps - state_.adapters[index(a)].steps;
        rounds = std::min(rounds, left);
    }
    return std::max(1, rounds);
}

void Trainer::plan_next(StreamPlanner& planner) {
    const std::int32_t left = std::max(0, last_round_ - planner.round());
    if (left == 0 || drain_wanted()) return planner.start(0, true);
    std::int32_t rounds = first_rounds;
    if (seconds_per_round_ > 0) {
        const double seconds = std::min(window_seconds, parts_.stop.seconds_left());
        rounds = static_cast<std::int32_t>(
            std::clamp(seconds / seconds_per_round_, 1.0, double{most_rounds}));
    }
    planner.start(std::min(rounds, left), rounds >= left);
}

bool Trainer::drain_wanted() {
    if (orders_.additions.empty() && orders_.stops.empty()) look_for_orders();
    return !orders_.additions.empty() || !orders_.stops.empty() || any_failure() ||
           checkpoint_due_by_time() || !reason_to_stop().empty();
}

void Trainer::post_if_ready(StreamPlanner& planner) {
    channel_.progress();
    records_.beat(state_, elapsed());
    if (!planner.ready()) return;
    posted_ = planner.take();
    channel_.post(std::string(1, static_cast<char>(Directive::train)) + posted_->text);
}

PlannedWindow Trainer::next_window(StreamPlanner& planner) {
    activity::begin(activity::Task::plan);
    if (!posted_) {
        posted_ = planner.take();
        channel_.post(std::string(1, static_cast<char>(Directive::train)) + posted_->text);
    }
    PlannedWindow next = std::move(*posted_);
    posted_.reset();
    return next;
}

void Trainer::on_batch(const BatchResult& result) {
    const BatchPlan& batch = result.batch;
    const std::size_t a = index(batch.adapter);
    const AdapterPlan& plan = parts_.plan.adapters[a];
    AdapterState& adapter = state_.adapters[a];
    StepMetrics metrics;
    metrics.step = batch.step + 1;
    metrics.epoch = static_cast<double>(batch.step + 1) / plan.steps_per_epoch;
    metrics.loss =
        batch.denominator > 0 ? result.loss_sum / static_cast<double>(batch.denominator) : 0.0;
    metrics.grad_norm = std::sqrt(result.grad_sumsq);
    metrics.learning_rate =
        learning_rate(parts_.job.adapter(batch.adapter), plan.total_steps, batch.step);
    metrics.target_tokens = batch.targets;
    metrics.tokens = batch.tokens;
    metrics.elapsed_seconds = elapsed();
    const double seconds = metrics.elapsed_seconds - std::max(last_batch_time_[a], seconds_before_);
    metrics.tokens_per_second = static_cast<double>(batch.tokens) / std::max(seconds, 1e-9);
    last_batch_time_[a] = metrics.elapsed_seconds;
    metrics_.record(batch.adapter, metrics);

    adapter.steps = batch.step + 1;
    adapter.last_loss = metrics.loss;
    if (std::isfinite(result.grad_sumsq)) {
        // Once too many, it stays so: the verdict must not depend on where windows end.
        if (adapter.bad_steps_in_row < bad_steps_allowed) adapter.bad_steps_in_row = 0;
    } else {
        ++adapter.bad_steps_in_row;
        log::warn(cat("adapter ", plan.name, ": gradient of step ", adapter.steps,
                      " is not finite; its update is skipped, the others go on"));
    }
    ++batches_done_;
    progress_.batch_done(batch, metrics.loss, metrics.elapsed_seconds, work_.left(state_));
    records_.batch_done(batch);
    records_.beat(state_, metrics.elapsed_seconds);
}

bool Trainer::any_failure() const {
    return std::any_of(state_.adapters.begin(), state_.adapters.end(), [](const AdapterState& a) {
        return a.status == AdapterStatus::running && a.bad_steps_in_row >= bad_steps_allowed;
    });
}

/// Why an adapter must be given up; "" = it need not.
std::string Trainer::failure_of(std::size_t adapter) const {
    const AdapterState& state = state_.adapters[adapter];
    if (state.bad_steps_in_row >= bad_steps_allowed) {
        return cat("gradients were not finite in ", state.bad_steps_in_row,
                   " steps in a row, up to step ", state.steps);
    }
    if (state.steps >= parts_.plan.adapters[adapter].total_steps &&
        !std::isfinite(state.last_loss)) {
        return "the loss of the last step is not finite";
    }
    return "";
}

void Trainer::settle_stream(std::int32_t round) {
    state_.round = round;
    for (std::size_t i = 0; i < state_.adapters.size(); ++i) {
        AdapterState& adapter = state_.adapters[i];
        if (adapter.status != AdapterStatus::running) continue;
        const std::string failure = failure_of(i);
        if (!failure.empty()) {
            const std::string& name = parts_.job.adapters[i].name;
            adapter.status = AdapterStatus::failed;
            write_text_atomic(parts_.job.run.dir + "/adapters/" + name + "/FAILED", failure + "\n");
            log::warn(cat("adapter ", name, " FAILED: ", failure));
        } else if (adapter.steps >= parts_.plan.adapters[i].total_steps) {
            adapter.status = AdapterStatus::done;
        }
    }
}

}  // namespace loratrain

#include "train/stream_trainer.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/directive.h"

namespace loratrain {

namespace {

constexpr std::int32_t first_rounds = 2;  // nothing is known of their time
constexpr std::int32_t most_rounds = 64;
constexpr double window_seconds = 2.0;  // an order or a stop waits for about two windows
constexpr double asking_seconds = 0.5;  // adapters that are added wait for the end
constexpr int most_planning_threads = 4;
constexpr double long_window = 2.0 * window_seconds;
constexpr double shortest_lead = 1.0;
constexpr double lead_share = 0.125;  // of a window: it may take less than expected
constexpr double planning_times = 4.0;
constexpr std::chrono::microseconds told_interval{50};

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
      makespan_(parts.job, parts.plan, MakespanCheck::most_microbatches, parts.met_shapes) {}

std::int32_t StreamTrainer::run(const Hooks& hooks) {
    StreamPlanner planner(parts_.job, parts_.plan, parts_.datasets, adapters_.progress(),
                          planning_threads(), ScheduleStream::Evaluations::due, planning_);
    const Clock::time_point started = window_started_ = Clock::now();
    const PipelineRunner::Hooks while_training{
        [&](const BatchResult& result) {
            ++batches_done_;
            newest_round_ = std::max(newest_round_, result.batch.round);
            hooks.on_batch(result);
        },
        [&] { look_after(planner, hooks); },
        [&](const EvalResult& part) { take_part(part); },
        {},
        {},
        [this](int rank) { return channel_.has_reached(rank, window_number_); }};
    journal_.stream_started();
    const std::int32_t first_round = adapters_.round();
    newest_round_ = first_round - 1;
    open_batches_.clear();
    stepped_.clear();
    save_before_planned_ = false;
    change_before_planned_ = change_before_posted_ = {};
    planner.await(hooks.deciding(planner.progress()));
    planner.start(std::min({first_rounds, hooks.last_round(planner.progress()) - first_round,
                            hooks.most_rounds(planner.progress())}),
                  false);
    for (bool more = true; more;) {
        const PlannedWindow planned = next_window(planner, hooks);
        const StreamChange change = std::exchange(change_before_posted_, {});
        more = !planned.window.common().drains;
        const std::int32_t rounds = newest_round_ + 1 - first_round;
        if (rounds > 0) seconds_per_round_ = seconds_since(started) / rounds;
        export_complete(hooks);
        copy_states();
        perform(change);
        note_change(change);
        note_batches(planned.window);
        if (more) {
            plan_next_ = [&] { plan_next(planner, hooks); };
            looked_for_additions_ = false;
            const double delay = planning_delay(seconds_per_round_ * planned.window.common().rounds,
                                                planner.planning_seconds());
            plan_next_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(delay));
            look_after(planner, hooks);
        }
        train(planned.window, while_training);
        if (plan_next_) wait_to_plan(planner, hooks);
        if (plan_next_ && hooks.grow()) planner.grow(parts_.datasets);
        if (plan_next_) std::exchange(plan_next_, {})();
    }
    wait_for_told(hooks);
    activity::begin(activity::Task::end_window);
    return planner.round();
}

void StreamTrainer::plan_next(StreamPlanner& planner, const Hooks& hooks) {
    const std::int32_t round = planner.round();
    if (hooks.drain_wanted(round)) return planner.start(0, true);
    const std::optional<StreamChange> change = hooks.change(planner.progress());
    if (!change) return planner.start(0, true);
    planner.change(*change);
    change_before_planned_ = *change;
    const std::int32_t left = std::max(0, hooks.last_round(planner.progress()) - round);
    if (left == 0) return planner.start(0, true);
    planner.await(hooks.deciding(planner.progress()));
    save_before_planned_ = hooks.save_wanted(round);
    const double seconds = hooks.awaits_verdicts() ? asking_seconds : window_seconds;
    const std::int32_t rounds =
        std::min(rounds_of_next(seconds), hooks.most_rounds(planner.progress()));
    planner.start(std::min(rounds, left), rounds >= left);
}

std::int32_t StreamTrainer::rounds_of_next(double most_seconds) const {
    if (seconds_per_round_ <= 0) return first_rounds;
    const double seconds = std::min(most_seconds, parts_.stop.seconds_left());
    return static_cast<std::int32_t>(
        std::clamp(seconds / seconds_per_round_, 1.0, double{most_rounds}));
}

PlannedWindow StreamTrainer::next_window(StreamPlanner& planner, const Hooks& hooks) {
    activity::begin(activity::Task::plan);
    if (!posted_) post(planner.take(), hooks);
    window_number_ = posted_number_;
    PlannedWindow next = std::move(*posted_);
    posted_.reset();
    return next;
}

void StreamTrainer::post(PlannedWindow window, const Hooks& hooks) {
    if (std::exchange(save_before_planned_, false)) {
        post_copies(window.window.common().first_round, hooks);
    }
    for (const AdapterId adapter : hooks.choose_exports(stepped_)) {
        told_parts_.expect({adapter}, parts_.mpi.size() - 1);
        channel_.post(to_text(SendAdapter{adapter}));
    }
    change_before_posted_ = std::exchange(change_before_planned_, {});
    for (const auto& [adapter, step] : change_before_posted_.kept) {
        told_parts_.expect({adapter, StatePart::parameters, PartUse::best, step},
                           ranks_that_copy());
    }
    if (!change_before_posted_.kept.empty()) {
        channel_.post(to_text(KeepParameters{change_before_posted_.kept}));
    }
    for (const AdapterId adapter : change_before_posted_.released) {
        channel_.post(to_text(ReleaseAdapter{adapter}));
    }
    if (!change_before_posted_.begun.empty()) {
        channel_.post(to_text(AdmitAdapters{change_before_posted_.resident}));
    }
    posted_number_ = channel_.post(window.directive);
    posted_ = std::move(window);
}

void StreamTrainer::post_copies(std::int32_t round, const Hooks& hooks) {
    copied_before_posted_ = hooks.begin_checkpoint(round);
    for (const AdapterId adapter : copied_before_posted_) {
        for (const StoredPart& stored : stored_parts) {
            told_parts_.expect({adapter, stored.part, PartUse::checkpoint}, ranks_that_copy());
        }
    }
    channel_.post(to_text(CopyStates{copied_before_posted_}));
}

/// Those of the first replica.
std::int32_t StreamTrainer::ranks_that_copy() const {
    const ReplicaPlan& replica = parts_.plan.replicas.front();
    return static_cast<std::int32_t>(replica.stages.size()) * replica.tensor;
}

/// Rank 0's part of it, before the window.
void StreamTrainer::copy_states() {
    if (copied_before_posted_.empty()) return;
    performer_.copy_states(std::exchange(copied_before_posted_, {}),
                           [this](AdapterPiece piece) { told_parts_.add(std::move(piece)); });
}

/// Rank 0's part of it, before the window.
void StreamTrainer::perform(const StreamChange& change) {
    performer_.keep_parameters(change.kept,
                               [this](AdapterPiece piece) { told_parts_.add(std::move(piece)); });
    for (const AdapterId adapter : change.released) performer_.release(adapter);
    if (!change.begun.empty()) performer_.admit(change.resident);
}

/// Between actions.
void StreamTrainer::look_after(StreamPlanner& planner, const Hooks& hooks) {
    keep_up(hooks);
    plan_next_in_time(planner, hooks);
    if (planner.ready()) post(planner.take(), hooks);
}

void StreamTrainer::keep_up(const Hooks& hooks) {
    channel_.progress();
    journal_.beat();
    take_told(hooks);
}

void StreamTrainer::plan_next_in_time(const StreamPlanner& planner, const Hooks& hooks) {
    if (!plan_next_ || Clock::now() < plan_next_at_) return;
    if (!std::exchange(looked_for_additions_, true)) hooks.look_for_additions();
    if (hooks.waits_to_grow() || hooks.awaits_evaluations(planner.round())) return;
    std::exchange(plan_next_, {})();
}

/// Behind a window: the other ranks tell what it has computed.
void StreamTrainer::wait_to_plan(const StreamPlanner& planner, const Hooks& hooks) {
    const activity::Waiting waiting;
    while (hooks.awaits_evaluations(planner.round())) {
        performer_.go_on_reading();
        keep_up(hooks);
        std::this_thread::sleep_for(told_interval);
    }
}

/// The window behind it is about to train; those that end have no batches in it.
void StreamTrainer::note_change(const StreamChange& change) {
    for (const AdapterId adapter : change.ended) note_last_batch(adapter);
    for (const AdapterId adapter : change.paused) note_last_batch(adapter);
    for (const AdapterId adapter : change.begun) {
        std::erase(stepped_, adapter);
        for (auto& [number_of_batch, open] : open_batches_) {
            if (open.adapter == adapter) open.last_of_adapter = false;
        }
    }
}

void StreamTrainer::note_last_batch(AdapterId adapter) {
    OpenBatch* newest = nullptr;
    for (auto& [number_of_batch, open] : open_batches_) {
        if (open.adapter == adapter) newest = &open;
    }
    if (newest == nullptr) stepped_.push_back(adapter);
    if (newest != nullptr) newest->last_of_adapter = true;
}

/// The window is about to train.
void StreamTrainer::note_batches(const JointWindow& joint) {
    std::size_t stages = 0;
    for (const Window& window : joint.replicas) stages += window.actions.size();
    std::int32_t number_of_batch = joint.common().first_batch;
    for (const BatchPlan& batch : joint.common().batches) {
        const std::int32_t b = number_of_batch++;
        if (!batch.evaluation) open_batches_[b] = {batch.adapter, stages, batch.last_of_adapter};
    }
    for (const Window& window : joint.replicas) {
        for (const std::vector<Action>& stage : window.actions) {
            for (const Action& action : stage) {
                if (action.kind == ActionKind::step) note_step(action.batch);
            }
        }
    }
}

void StreamTrainer::note_step(std::int32_t batch) {
    const auto open = open_batches_.find(batch);
    if (--open->second.stages_left > 0) return;
    if (open->second.last_of_adapter) stepped_.push_back(open->second.adapter);
    open_batches_.erase(open);
}

void StreamTrainer::note_evaluations(const JointWindow& joint) {
    for (std::size_t b = 0; b < joint.common().batches.size(); ++b) {
        const BatchPlan& batch = joint.common().batches[b];
        if (!batch.evaluation && !parts_.job.tells_more(batch.adapter)) continue;
        const auto here = [b](const Window& window) { return window.batches[b].is_here(); };
        const std::int32_t step = batch.evaluation ? batch.step : batch.step + 1;
        open_evaluations_[{batch.adapter, step, !batch.evaluation}].replicas =
            static_cast<std::size_t>(
                std::count_if(joint.replicas.begin(), joint.replicas.end(), here));
    }
}

/// Their parts are added in the order of the replicas.
void StreamTrainer::tell_complete_evaluations(const Hooks& hooks) {
    std::erase_if(open_evaluations_, [&](const auto& entry) {
        const OpenEvaluation& open = entry.second;
        if (open.replicas == 0 || open.parts.size() < open.replicas) return false;
        EvalResult sum = open.parts.begin()->second;
        for (auto part = std::next(open.parts.begin()); part != open.parts.end(); ++part) {
            sum.add(part->second);
        }
        hooks.on_evaluation(sum);
        return true;
    });
}

void StreamTrainer::take_part(const EvalResult& part) {
    open_evaluations_[{part.adapter, part.step, part.training}].parts[part.replica] = part;
}

/// What other ranks have told.
void StreamTrainer::take_told(const Hooks& hooks) {
    while (const std::optional<std::string> told = channel_.told()) {
        if (is_adapter_piece(*told)) {
            told_parts_.add(adapter_piece_from_text(*told));
            continue;
        }
        if (is_additions_verdict(*told)) {
            hooks.on_verdict(additions_verdict_from_text(*told));
            continue;
        }
        for (const EvalResult& part : eval_results_from_text(*told)) take_part(part);
    }
    tell_complete_evaluations(hooks);
    for (auto& [key, values] : told_parts_.take_complete(PartUse::checkpoint)) {
        hooks.store_part(key, std::move(values));
    }
    for (auto& [key, values] : told_parts_.take_complete(PartUse::best)) {
        hooks.store_kept(key, std::move(values));
    }
    hooks.go_on_saving();
}

void StreamTrainer::export_complete(const Hooks& hooks) {
    for (auto& [key, values] : told_parts_.take_complete(PartUse::exported)) {
        hooks.export_adapter(key.adapter, std::move(values));
    }
}

void StreamTrainer::wait_for_told(const Hooks& hooks) {
    const auto take = [&] {
        take_told(hooks);
        export_complete(hooks);
        journal_.beat();
        return open_evaluations_.empty() && told_parts_.empty() && !hooks.awaits_verdicts();
    };
    const activity::Waiting waiting;
    while (!take()) std::this_thread::sleep_for(told_interval);
}

void StreamTrainer::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    journal_.window_started(window.common());
    note_evaluations(window);
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

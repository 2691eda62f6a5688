#include "train/stream_trainer.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/command.h"

namespace loratrain {

namespace {

constexpr std::int32_t first_rounds = 2;  // nothing is known of their time
constexpr std::int32_t most_rounds_of_window = 64;
constexpr double window_seconds = 2.0;  // an order or a stop waits for about two windows
constexpr double asking_seconds = 0.5;  // adapters that are added wait for the end
constexpr int most_planning_threads = 4;
constexpr double long_window = 2.0 * window_seconds;
constexpr double shortest_lead = 1.0;
constexpr double lead_share = 0.125;  // of a window: it may take less than expected
constexpr double planning_times = 4.0;
constexpr std::chrono::microseconds report_interval{50};

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

StreamTrainer::StreamTrainer(const RunParts& parts, const AdapterTable& adapters,
                             WorkerRanks& ranks, Journal& journal)
    : parts_(parts),
      adapters_(adapters),
      ranks_(ranks),
      journal_(journal),
      makespan_(parts.job, parts.plan, MakespanCheck::most_microbatches, parts.met_shapes) {}

// ---- questions to all services

bool StreamTrainer::any(bool (Service::*question)() const) const {
    return std::any_of(services_.begin(), services_.end(),
                       [&](const Service* service) { return (service->*question)(); });
}

bool StreamTrainer::awaits_results(std::int32_t round) const {
    return std::any_of(services_.begin(), services_.end(),
                       [&](const Service* service) { return service->awaits_results(round); });
}

bool StreamTrainer::needs_drain(std::int32_t round) const {
    return std::any_of(services_.begin(), services_.end(),
                       [&](Service* service) { return service->needs_drain(round); });
}

/// None: the pipeline has to be empty.
std::optional<StreamChange> StreamTrainer::change(const Progress& planned) const {
    StreamChange change;
    for (Service* service : services_) {
        if (!service->change(planned, change)) return std::nullopt;
    }
    return change;
}

std::int32_t StreamTrainer::last_round(const Progress& planned) const {
    std::int32_t last = Service::no_round;
    for (const Service* service : services_) last = std::min(last, service->last_round(planned));
    return last;
}

std::int32_t StreamTrainer::most_rounds(const Progress& planned) const {
    std::int32_t next = Service::no_round;
    for (const Service* service : services_) next = std::min(next, service->next_event(planned));
    return next == Service::no_round ? next : std::max(1, next - planned.round);
}

std::vector<AdapterId> StreamTrainer::deciding(const Progress& planned) const {
    std::set<AdapterId> all;
    for (const Service* service : services_) {
        std::vector<AdapterId> adapters;
        service->add_deciding(planned, adapters);
        all.insert(adapters.begin(), adapters.end());
    }
    return {all.begin(), all.end()};
}

/// Asks all services, so that samples that come all the time do not keep adapters out.
bool StreamTrainer::grow() const {
    bool grown = false;
    for (Service* service : services_) grown = service->grow() || grown;
    return grown;
}

// ---- a stream

PipelineRunner::Hooks StreamTrainer::hooks(StreamPlanner* planner) {
    PipelineRunner::Hooks hooks;
    hooks.on_batch = [this](const BatchResult& result) {
        ++batches_done_;
        newest_round_ = std::max(newest_round_, result.batch.round);
        for (Service* service : services_) service->on_step(result);
    };
    hooks.between_actions = [this, planner] {
        if (planner != nullptr) return look_after(*planner);
        keep_up();
    };
    hooks.on_evaluation = [this](const EvalResult& part) { take_part(part); };
    return hooks;
}

std::int32_t StreamTrainer::run() {
    StreamPlanner planner(parts_.job, parts_.plan, parts_.datasets, adapters_.progress(),
                          planning_threads(), ScheduleStream::Evaluations::due, planning_);
    const Clock::time_point started = window_started_ = Clock::now();
    const PipelineRunner::Hooks while_training = hooks(&planner);
    for (Service* service : services_) service->begin_stream();
    journal_.stream_started();
    const std::int32_t first_round = adapters_.round();
    newest_round_ = first_round - 1;
    open_batches_.clear();
    stepped_.clear();
    change_before_planned_ = change_before_ordered_ = {};
    planner.await(deciding(planner.progress()));
    planner.start(std::min({first_rounds, last_round(planner.progress()) - first_round,
                            most_rounds(planner.progress())}),
                  false);
    for (bool more = true; more;) {
        const PlannedWindow planned = next_window(planner);
        const StreamChange change = std::exchange(change_before_ordered_, {});
        more = !planned.window.common().drains;
        const std::int32_t rounds = newest_round_ + 1 - first_round;
        if (rounds > 0) seconds_per_round_ = seconds_since(started) / rounds;
        ranks_.perform_ordered();
        take_reports();
        report_parts(PartUse::exported);
        note_change(change);
        note_batches(planned.window);
        if (more) {
            plan_next_ = [&] { plan_next(planner); };
            looked_for_orders_ = false;
            const double delay = planning_delay(seconds_per_round_ * planned.window.common().rounds,
                                                planner.planning_seconds());
            plan_next_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(delay));
            look_after(planner);
        }
        train(planned.window, while_training);
        if (plan_next_) wait_to_plan(planner);
        if (plan_next_ && grow()) planner.grow(parts_.datasets);
        if (plan_next_) std::exchange(plan_next_, {})();
    }
    wait_for_reports();
    activity::begin(activity::Task::end_window);
    return planner.round();
}

void StreamTrainer::plan_next(StreamPlanner& planner) {
    const std::int32_t round = planner.round();
    if (needs_drain(round)) return planner.start(0, true);
    const std::optional<StreamChange> changed = change(planner.progress());
    if (!changed) return planner.start(0, true);
    planner.change(*changed);
    change_before_planned_ = *changed;
    const std::int32_t left = std::max(0, last_round(planner.progress()) - round);
    if (left == 0) return planner.start(0, true);
    planner.await(deciding(planner.progress()));
    for (Service* service : services_) service->on_planning(round);
    const bool is_asked = any(&Service::awaits_reports) || any(&Service::looks_often);
    const double seconds = is_asked ? asking_seconds : window_seconds;
    const std::int32_t rounds = std::min(rounds_of_next(seconds), most_rounds(planner.progress()));
    planner.start(std::min(rounds, left), rounds >= left);
}

std::int32_t StreamTrainer::rounds_of_next(double most_seconds) const {
    if (seconds_per_round_ <= 0) return first_rounds;
    const double seconds = std::min(most_seconds, parts_.stop.seconds_left());
    return static_cast<std::int32_t>(
        std::clamp(seconds / seconds_per_round_, 1.0, double{most_rounds_of_window}));
}

PlannedWindow StreamTrainer::next_window(StreamPlanner& planner) {
    activity::begin(activity::Task::plan);
    if (!ordered_) order(planner.take());
    PlannedWindow next = std::move(*ordered_);
    ordered_.reset();
    return next;
}

/// Plans expect batches of a dataset that grows before they come; nothing trains on those.
void StreamTrainer::check_arrived(const Window& window) const {
    for (const BatchPlan& batch : window.batches) {
        const AdapterJob& job = parts_.job.adapter(batch.adapter);
        const auto& arrivals = parts_.datasets[index(job.dataset)].arrivals;
        LORATRAIN_CHECK(!arrivals || batch.evaluation || arrivals->has(batch.step), "step ",
                        batch.step + 1, " of adapter ", job.name, " has no rollouts");
    }
}

void StreamTrainer::order(PlannedWindow window) {
    check_arrived(window.window.common());
    const std::int32_t round = window.window.common().first_round;
    for (Service* service : services_) service->before_window(round, stepped_);
    change_before_ordered_ = std::exchange(change_before_planned_, {});
    if (!change_before_ordered_.kept.empty()) keep_parameters(change_before_ordered_.kept);
    for (const AdapterId adapter : change_before_ordered_.released) {
        ranks_.order(ReleaseAdapter{adapter});
    }
    if (!change_before_ordered_.begun.empty()) {
        ranks_.order(AdmitAdapters{change_before_ordered_.resident});
    }
    if (!change_before_ordered_.begun_kept.empty()) {
        keep_parameters(change_before_ordered_.begun_kept);
    }
    ranks_.order_window(window);
    ordered_ = std::move(window);
}

// ---- orders whose values come back

void StreamTrainer::send_parameters(AdapterId adapter) {
    parts_to_come_.expect({adapter}, ranks_.count());
    ranks_.order(SendAdapter{adapter});
}

void StreamTrainer::copy_states(const std::vector<AdapterId>& adapters) {
    for (const AdapterId adapter : adapters) {
        for (const StoredPart& stored : stored_parts) {
            parts_to_come_.expect({adapter, stored.part, PartUse::checkpoint}, ranks_that_copy());
        }
    }
    ranks_.order(CopyStates{adapters});
}

void StreamTrainer::keep_parameters(const std::vector<AdapterAtStep>& adapters) {
    for (const auto& [adapter, step] : adapters) {
        parts_to_come_.expect({adapter, StatePart::parameters, PartUse::kept, step},
                              ranks_that_copy());
    }
    ranks_.order(KeepParameters{adapters});
}

/// Those of the first replica.
std::int32_t StreamTrainer::ranks_that_copy() const {
    const ReplicaPlan& replica = parts_.plan.replicas.front();
    return static_cast<std::int32_t>(replica.stages.size()) * replica.tensor;
}

// ---- an empty pipeline

std::vector<EvalResult> StreamTrainer::evaluate(const JointWindow& window) {
    std::vector<EvalResult> results;
    asked_evaluations_ = &results;
    ranks_.perform_ordered();
    ranks_.order_window({window, to_bytes(TrainWindow{window})});
    note_evaluations(window);
    ranks_.train(window, hooks(nullptr));
    wait_for_reports();
    asked_evaluations_ = nullptr;
    std::sort(results.begin(), results.end(),
              [](const EvalResult& a, const EvalResult& b) { return a.adapter < b.adapter; });
    return results;
}

void StreamTrainer::finish_orders() {
    ranks_.perform_ordered();
    wait_for_reports();
}

// ---- between actions

void StreamTrainer::look_after(StreamPlanner& planner) {
    keep_up();
    plan_next_in_time(planner);
    if (planner.ready()) order(planner.take());
}

void StreamTrainer::keep_up() {
    ranks_.progress();
    journal_.beat();
    take_reports();
}

void StreamTrainer::plan_next_in_time(const StreamPlanner& planner) {
    if (!plan_next_ || Clock::now() < plan_next_at_) return;
    if (!std::exchange(looked_for_orders_, true)) {
        for (Service* service : services_) service->look_for_orders();
    }
    if (any(&Service::delays_planning) || awaits_results(planner.round())) return;
    std::exchange(plan_next_, {})();
}

/// Behind a window: the other ranks tell what it has computed.
void StreamTrainer::wait_to_plan(const StreamPlanner& planner) {
    const activity::Waiting waiting;
    while (awaits_results(planner.round())) {
        ranks_.go_on_reading();
        keep_up();
        std::this_thread::sleep_for(report_interval);
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
        if (!batch.evaluation && !parts_.job.has_step_details(batch.adapter)) continue;
        const auto here = [b](const Window& window) { return window.batches[b].is_here(); };
        const std::int32_t step = batch.evaluation ? batch.step : batch.step + 1;
        open_evaluations_[{batch.adapter, step, !batch.evaluation}].replicas =
            static_cast<std::size_t>(
                std::count_if(joint.replicas.begin(), joint.replicas.end(), here));
    }
}

/// Their parts are added in the order of the replicas.
void StreamTrainer::report_complete_evaluations() {
    std::erase_if(open_evaluations_, [&](const auto& entry) {
        const OpenEvaluation& open = entry.second;
        if (open.replicas == 0 || open.parts.size() < open.replicas) return false;
        EvalResult sum = open.parts.begin()->second;
        for (auto part = std::next(open.parts.begin()); part != open.parts.end(); ++part) {
            sum.add(part->second);
        }
        if (asked_evaluations_ != nullptr) {
            asked_evaluations_->push_back(sum);
        } else {
            for (Service* service : services_) service->on_evaluation(sum);
        }
        return true;
    });
}

void StreamTrainer::take_part(const EvalResult& part) {
    open_evaluations_[{part.adapter, part.step, part.training}].parts[part.replica] = part;
}

void StreamTrainer::take_reports() {
    while (std::optional<Report> report = ranks_.report()) {
        if (auto* piece = std::get_if<AdapterPiece>(&*report)) {
            parts_to_come_.add(std::move(*piece));
        } else if (const auto* additions = std::get_if<AdditionsReport>(&*report)) {
            for (Service* service : services_) service->on_report(*additions);
        } else {
            for (const EvalResult& part : std::get<std::vector<EvalResult>>(*report)) {
                take_part(part);
            }
        }
    }
    report_complete_evaluations();
    report_parts(PartUse::checkpoint);
    report_parts(PartUse::kept);
    for (Service* service : services_) service->go_on();
}

/// Exports are written between two windows.
void StreamTrainer::report_parts(PartUse use) {
    for (auto& [key, values] : parts_to_come_.take_complete(use)) {
        for (Service* service : services_) service->on_part(key, values);
    }
}

void StreamTrainer::wait_for_reports() {
    const auto take = [&] {
        ranks_.progress();
        take_reports();
        report_parts(PartUse::exported);
        journal_.beat();
        return open_evaluations_.empty() && parts_to_come_.empty() &&
               !any(&Service::awaits_reports);
    };
    const activity::Waiting waiting;
    while (!take()) std::this_thread::sleep_for(report_interval);
}

void StreamTrainer::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    journal_.window_started(window.common());
    note_evaluations(window);
    ranks_.train(window, hooks);
    const double seconds = seconds_since(window_started_);
    window_started_ = Clock::now();
    makespan_.add(window, seconds);
    parts_.stop.window_took(2.0 * seconds);
    const std::string notice = parts_.stop.interrupt_notice();
    if (!notice.empty()) log::info(notice);
    journal_.flush();
}

}  // namespace loratrain

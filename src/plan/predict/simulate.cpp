#include "plan/predict/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "plan/action_traits.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/host_links.h"
#include "plan/memory/memory_model.h"
#include "plan/stage_layers.h"

namespace loratrain {

namespace {

template <class Item>
const Item& item(const std::vector<Item>& items, std::int32_t i) {
    return items[static_cast<std::size_t>(i)];
}

}  // namespace

double Timeline::makespan() const {
    double end = 0.0;
    for (const auto& spans : stages) {
        if (!spans.empty()) end = std::max(end, spans.back().end);
    }
    return end;
}

double Timeline::busy(std::size_t stage) const {
    double seconds = 0.0;
    for (const TimelineSpan& span : stages[stage]) seconds += span.end - span.start;
    return seconds;
}

double Timeline::idle_share(std::size_t stage) const {
    const double whole = makespan();
    return whole > 0.0 ? std::max(0.0, 1.0 - busy(stage) / whole) : 0.0;
}

double Timeline::idle_share() const {
    double sum = 0.0;
    for (std::size_t s = 0; s < stages.size(); ++s) sum += idle_share(s);
    return stages.empty() ? 0.0 : sum / static_cast<double>(stages.size());
}

double Timeline::slowdown() const {
    double all_busy = 0.0;
    for (std::size_t s = 0; s < stages.size(); ++s) all_busy += busy(s);
    return full_speed_seconds > 0.0 ? all_busy / full_speed_seconds : 1.0;
}

std::int64_t Timeline::tokens() const {
    std::int64_t sum = 0;
    for (const BatchPlan& batch : batches) sum += batch.evaluation ? 0 : batch.tokens;
    return sum;
}

double Timeline::tokens_per_second() const {
    const double whole = makespan();
    return whole > 0.0 ? static_cast<double>(tokens()) / whole : 0.0;
}

Simulator::Simulator(const Job& job, const Plan& plan) : job_(job) {
    for (const ReplicaView& view : views_of(plan)) add_replica(view, predicted_costs_of(view));
}

Simulator::Simulator(const Job& job, const ReplicaView& view, const CostModel& costs) : job_(job) {
    add_replica(view, costs);
}

void Simulator::add_replica(const ReplicaView& view, const CostModel& costs) {
    replicas_.push_back({view, stages_.size(), {}});
    for (std::size_t s = 0; s < view.replica.stages.size(); ++s) {
        StageState& stage = stages_.emplace_back();
        stage.replica = replicas_.size() - 1;
        stage.of_replica = s;
        const std::int32_t host = view.replica.stages[s].rank / std::max(1, costs.ranks_per_host);
        stage.host = static_cast<std::size_t>(host);
        stage.costs = costs_of_stage(view, view.replica.stages[s], costs);
        computing_.resize(std::max(computing_.size(), stage.host + 1));
    }
    timeline_.stages.resize(stages_.size());
}

void Simulator::add(const JointWindow& joint) {
    queue_actions(joint);
    advance(false);
}

const Timeline& Simulator::timeline() {
    advance(true);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        LORATRAIN_CHECK(stages_[s].actions.empty(), "simulation: stage ", s, " waits for ever, ",
                        stages_[s].actions.size(), " actions are left");
    }
    return timeline_;
}

void Simulator::queue_actions(const JointWindow& joint) {
    LORATRAIN_CHECK(joint.replicas.size() == replicas_.size(), "windows of ", joint.replicas.size(),
                    " replicas instead of ", replicas_.size());
    if (joint.common().begins) {
        stream_batches_ = static_cast<std::int32_t>(timeline_.batches.size());
        for (Replica& replica : replicas_) replica.places.clear();
    }
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
        queue_actions(replicas_[r], joint.replicas[r]);
    }
    for (BatchPlan batch : joint.common().batches) {
        for (MicrobatchId* id : {&batch.first_microbatch, &batch.last_microbatch}) {
            if (number(*id) >= 0) *id = replicas_.front().places[index(*id)];
        }
        timeline_.batches.push_back(batch);
    }
}

void Simulator::queue_actions(Replica& replica, const Window& window) {
    const AttentionSpan span(replica.view.plan.model);
    for (const Microbatch& microbatch : window.microbatches) {
        replica.places.push_back(static_cast<MicrobatchId>(timeline_.microbatches.size()));
        loads_.push_back(loads_of(microbatch, span));
        timeline_.microbatches.push_back(microbatch);
    }
    for (std::size_t s = 0; s < window.actions.size(); ++s) {
        for (Action action : window.actions[s]) {
            const ActionNumber counts = traits_of(action.kind).number;
            if (counts == ActionNumber::microbatch) {
                action.microbatch = replica.places[index(action.microbatch)];
            }
            if (counts == ActionNumber::batch) action.batch += stream_batches_;
            stages_[replica.first_stage + s].actions.push_back(std::move(action));
        }
    }
}

void Simulator::reduce(std::size_t stage, const Action& action) {
    Sum& sum = sums_[action.batch];
    const CostModel& costs = stages_[stage].costs;
    sum.seconds = std::max(sum.seconds, exchange_seconds(costs.link(on_one_host()),
                                                         parameters_of(stage, action.batch)));
    if (++sum.stages < stages_.size()) return;
    sums_end_ = sum.end = std::max(now_ + until_all_look(), sums_end_) + sum.seconds;
    timeline_.exchange_seconds += sum.seconds;
}

/// A host that gives its device a layer does nothing else.
double Simulator::until_all_look() const {
    double seconds = 0.0;
    for (const StageState& stage : stages_) {
        if (stage.computing) seconds = std::max(seconds, stage.layer / speed(stage.host));
    }
    return seconds;
}

/// That a step needs.
bool Simulator::sum_is_there(std::size_t stage, const Action& action) {
    const auto found = sums_.find(action.batch);
    if (found == sums_.end()) return replicas_.size() == 1;
    if (found->second.stages < stages_.size()) return false;
    stages_[stage].wakes = found->second.end;
    return found->second.end <= now_;
}

void Simulator::advance(bool to_the_end) {
    while (true) {
        start_what_can();
        const bool some_idle = std::any_of(stages_.begin(), stages_.end(),
                                           [](const StageState& stage) { return stage.idle(); });
        if ((some_idle && !to_the_end) || !next_event()) return;
    }
}

/// What one stage sends may serve another at the same moment.
void Simulator::start_what_can() {
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            StageState& stage = stages_[s];
            while (!stage.computing && !stage.actions.empty() &&
                   perform(s, stage.actions.front())) {
                stage.actions.pop_front();
                moved = true;
            }
        }
    }
}

/// Goes to the next end of a computation or arrival of a message that is waited for; false if none
/// is to come.
bool Simulator::next_event() {
    double next = std::numeric_limits<double>::infinity();
    const auto end_of = [&](const StageState& stage) {
        return now_ + stage.left / speed(stage.host);
    };
    for (const StageState& stage : stages_) {
        if (stage.computing) next = std::min(next, end_of(stage));
        if (!stage.computing && stage.wakes > now_) next = std::min(next, stage.wakes);
    }
    if (std::isinf(next)) return false;
    std::vector<std::size_t> ended;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        StageState& stage = stages_[s];
        if (!stage.computing) continue;
        if (end_of(stage) <= next) ended.push_back(s);
        stage.left -= (next - now_) * speed(stage.host);
    }
    now_ = next;
    for (const std::size_t s : ended) {
        stages_[s].computing = false;
        computing_[stages_[s].host] -= replica_of(s).view.replica.tensor;
        timeline_.stages[s].back().end = now_;
    }
    return true;
}

double Simulator::speed(std::size_t host) const {
    const double computing = computing_[host];
    const double most = stages_.front().costs.full_speed_ranks;
    return most > 0.0 && computing > most ? most / computing : 1.0;
}

bool Simulator::perform(std::size_t stage, const Action& action) {
    const ActionTraits& traits = traits_of(action.kind);
    const bool up = goes_up(traits.channel);
    switch (traits.role) {
        case ActionRole::compute:
            if (action.kind == ActionKind::step && !sum_is_there(stage, action)) return false;
            if (action.kind == ActionKind::reduce) {
                reduce(stage, action);
            } else {
                compute(stage, action);
            }
            return true;
        case ActionRole::send:
            send(stage, up ? stage + 1 : stage - 1, up ? stages_[stage].up : stages_[stage].down,
                 action);
            return true;
        case ActionRole::receive:
            return receive(stage, up ? stages_[stage - 1].up : stages_[stage + 1].down, action);
    }
    return true;
}

void Simulator::compute(std::size_t stage, const Action& action) {
    StageState& state = stages_[stage];
    TimelineSpan span;
    span.kind = action.kind;
    if (traits_of(action.kind).number == ActionNumber::batch) {
        span.batch = action.batch;
    } else {
        span.microbatch = number(action.microbatch);
    }
    span.start = now_;
    timeline_.stages[stage].push_back(span);
    state.left = seconds_of(stage, action) + stall_of(stage, action);
    timeline_.full_speed_seconds += state.left;
    const ReplicaView& view = replica_of(stage).view;
    const std::int32_t layers = view.replica.stages[state.of_replica].layer_count;
    state.layer = action.kind == ActionKind::step ? 0.0 : state.left / std::max(1, layers);
    state.computing = true;
    computing_[state.host] += replica_of(stage).view.replica.tensor;
}

void Simulator::send(std::size_t stage, std::size_t other, Link& link, const Action& action) {
    const LinkCost cost = stages_[stage].costs.link(stages_[stage].host == stages_[other].host);
    link.free_at = std::max(now_, link.free_at) + cost.per_byte * bytes_of(stage, action);
    link.under_way.push_back(
        {traits_of(action.kind).channel, number_of(action), link.free_at + cost.fixed});
}

bool Simulator::receive(std::size_t stage, Link& link, const Action& action) {
    if (link.under_way.empty()) return false;
    const Message message = link.under_way.front();
    const bool expected = message.channel == traits_of(action.kind).channel &&
                          message.microbatch == number_of(action);
    LORATRAIN_CHECK(expected, "simulation: stage ", stage, " gets microbatch ", message.microbatch,
                    " where it expects ", number(action.microbatch));
    stages_[stage].wakes = message.arrival;
    if (message.arrival > now_) return false;
    link.under_way.pop_front();
    return true;
}

/// That the stage has of the batch's adapter.
double Simulator::parameters_of(std::size_t stage, std::int32_t batch) const {
    const ReplicaView& view = replica_of(stage).view;
    const AdapterId adapter = item(timeline_.batches, batch).adapter;
    const LayerRange layers = layers_of(view.replica.stages[stages_[stage].of_replica], adapter);
    return static_cast<double>(
        adapter_parameters(job_.adapter(adapter), view.lane_model, layers.count));
}

double Simulator::seconds_of(std::size_t stage, const Action& action) const {
    const ReplicaView& view = replica_of(stage).view;
    const CostModel& costs = stages_[stage].costs;
    const StagePlan& part = view.replica.stages[stages_[stage].of_replica];
    if (action.kind == ActionKind::step) {
        return costs.step_fixed + costs.step_per_parameter * parameters_of(stage, action.batch);
    }
    const AdapterLoads& loads = item(loads_, number(action.microbatch));
    const bool evaluation = item(timeline_.microbatches, number(action.microbatch)).evaluation;
    return action.kind == ActionKind::forward
               ? forward_seconds(costs, part, loads, evaluation)
               : backward_seconds(costs, part, loads, view.replica.recompute);
}

/// In which the host deals with shapes that are new to it.
double Simulator::stall_of(std::size_t stage, const Action& action) {
    if (met_shapes_ == nullptr || action.kind != ActionKind::forward) return 0.0;
    const Replica& replica = replica_of(stage);
    const StagePlan& part = replica.view.replica.stages[stages_[stage].of_replica];
    return met_shapes_->meet(meeting_stage(stage, replica.view, part), stages_[stage].costs.host,
                             item(timeline_.microbatches, number(action.microbatch)));
}

double Simulator::bytes_of(std::size_t stage, const Action& action) const {
    const ReplicaView& view = replica_of(stage).view;
    const auto tail = static_cast<double>(message_tail_bytes(view.plan));
    if (action.kind == ActionKind::send_norms) return tail;
    const auto row = static_cast<double>(view.lane_model.hidden_size) *
                     static_cast<double>(compute_bytes(view.plan));
    return tail + row * static_cast<double>(item(loads_, number(action.microbatch)).total.tokens);
}

}  // namespace loratrain

#include "plan/schedule/pipeline_actions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

PipelineLoad empty_load(const ReplicaView& view) {
    PipelineLoad load;
    load.stages = static_cast<std::int32_t>(view.replica.stages.size());
    load.max_in_flight = view.replica.max_in_flight;
    return load;
}

}  // namespace

PipelineOrder::PipelineOrder(const ReplicaView& view)
    : view_(view), load_(empty_load(view)), schedule_(load_) {}

void PipelineOrder::add(const Window& window, std::span<const std::int32_t> over_after) {
    const AttentionSpan span(view_.plan.model);
    for (const Microbatch& microbatch : window.microbatches) {
        add_times(load_, costs_of(view_), view_.replica.stages, view_.replica.recompute,
                  loads_of(microbatch, span), microbatch.evaluation);
        load_.required.push_back(0);
        load_.evaluation.push_back(microbatch.evaluation);
    }
    for (std::size_t b = 0; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        std::int32_t& newest = over_after_[batch.adapter];
        const std::int32_t before = newest;
        if (!batch.evaluation) newest = over_after[b];
        if (!batch.is_here()) continue;
        const auto first = static_cast<std::size_t>(number(batch.first_microbatch) - load_.first);
        load_.required[first] = std::max(load_.required[first], before);
    }
}

ComputeOrder PipelineOrder::advance(bool to_the_end, std::int32_t least_backwards,
                                    std::int32_t least_forwards) {
    ComputeOrder order(view_.replica.stages.size());
    schedule_.advance(to_the_end, &order, least_backwards, least_forwards);
    drop_below(load_, schedule_.ended());
    return order;
}

std::vector<std::int32_t> PipelineOrder::peak_in_flight() const {
    std::vector<std::int32_t> peaks;
    for (std::size_t s = 0; s < view_.replica.stages.size(); ++s) {
        peaks.push_back(schedule_.peak_in_flight(s));
    }
    return peaks;
}

using BatchList = std::vector<std::int32_t>;

/// One stage's list. Microbatches take the activation slots and message buffers in turn: they are
/// forwarded in order and backwarded in order, no more under way than there are slots.
class StageActions {
  public:
    /// `backwards`: of the stage so far.
    StageActions(const ReplicaView& view, std::size_t stage, const std::int32_t& backwards)
        : backwards_(backwards),
          slots_(slot_count(view, stage)),
          first_(stage == 0),
          last_(stage + 1 == view.replica.stages.size()),
          before_(first_ ? -1 : view.replica.stages[stage - 1].rank),
          after_(last_ ? -1 : view.replica.stages[stage + 1].rank) {}

    void receive(std::int32_t microbatch, const BatchList& up) {
        if (!first_) message(action_of(microbatch), ActionKind::recv_forward, before_, up);
    }

    void forward(std::int32_t microbatch, const BatchList& up) {
        const Action action = action_of(microbatch);
        step(up);
        compute(action, ActionKind::forward);
        if (!last_) message(action, ActionKind::send_forward, after_, up);
    }

    void backward(std::int32_t microbatch, const BatchList& down) {
        Action action;
        action.microbatch = MicrobatchId{microbatch};
        if (!first_ || !last_) action.buffer = backwards_ % gradient_buffers;
        if (!last_) message(action, ActionKind::recv_backward, after_, down);
        action.slot = microbatch % slots_;
        compute(action, ActionKind::backward);
        action.slot = -1;
        if (!first_) message(action, ActionKind::send_backward, before_, down);
    }

    void compute_batch(std::int32_t batch, ActionKind kind) {
        Action action;
        action.batch = batch;
        compute(action, kind);
    }

    void flush(const BatchList& left) {
        if (left.empty()) return;
        Action action;
        action.buffer = 0;
        if (first_) step(left);
        if (!first_) message(action, ActionKind::recv_norms, before_, left);
        if (!last_) message(action, ActionKind::send_norms, after_, left);
        if (!first_) step(left);
    }

    std::vector<Action> take() { return std::move(actions_); }

  private:
    Action action_of(std::int32_t microbatch) const {
        Action action;
        action.microbatch = MicrobatchId{microbatch};
        action.slot = microbatch % slots_;
        return action;
    }
    void compute(Action action, ActionKind kind) {
        action.kind = kind;
        actions_.push_back(std::move(action));
    }
    void message(Action action, ActionKind kind, std::int32_t peer, const BatchList& carried) {
        action.kind = kind;
        action.peer = peer;
        action.carried = carried;
        actions_.push_back(std::move(action));
    }
    void step(const BatchList& batches) {
        for (const std::int32_t batch : batches) compute_batch(batch, ActionKind::step);
    }

    const std::int32_t& backwards_;
    std::int32_t slots_;
    bool first_;
    bool last_;
    std::int32_t before_;  ///< rank of the neighbour
    std::int32_t after_;
    std::vector<Action> actions_;
};

namespace {

const BatchList& carried_with(const std::map<std::int32_t, BatchList>& lists,
                              std::int32_t microbatch) {
    static const BatchList none;
    const auto found = lists.find(microbatch);
    return found == lists.end() ? none : found->second;
}

/// Entries below `number` leave.
template <class Entry>
void drop_entries_below(std::map<std::int32_t, Entry>& lists, std::int32_t number) {
    lists.erase(lists.begin(), lists.lower_bound(number));
}

}  // namespace

PipelineActions::PipelineActions(const ReplicaView& view)
    : view_(view),
      joint_(view.plan.replicas.size() > 1),
      order_(view),
      sums_(view.replica.stages.size()),
      backwarded_(view.replica.stages.size(), 0) {}

void PipelineActions::note_carried(const Window& window) {
    if (joint_) return;
    for (std::size_t i = 0; i < window.batches.size(); ++i) {
        const BatchPlan& batch = window.batches[i];
        const std::int32_t b = window.first_batch + static_cast<std::int32_t>(i);
        carry(batch.adapter, number(batch.first_microbatch));
        if (batch.evaluation) continue;
        newest_[batch.adapter] = {b, number(batch.last_microbatch), batch.last_of_adapter};
        down_[number(batch.last_microbatch)].push_back(b);
    }
    carry_totals_of_ended(window);
}

void PipelineActions::carry(AdapterId adapter, std::int32_t microbatch) {
    const auto newest = newest_.find(adapter);
    if (newest == newest_.end()) return;
    up_[microbatch].push_back(newest->second.batch);
    newest_.erase(newest);
}

void PipelineActions::carry_totals_of_ended(const Window& window) {
    const std::int32_t end =
        window.first_microbatch + static_cast<std::int32_t>(window.microbatches.size());
    for (auto entry = newest_.begin(); entry != newest_.end();) {
        const auto [adapter, newest] = *entry++;
        const std::int32_t behind =
            std::max(newest.last_microbatch + view_.replica.max_in_flight, window.first_microbatch);
        if (newest.last_of_adapter && behind < end) carry(adapter, behind);
    }
}

/// In the order in which they are reduced, which those that are over on this replica keep.
void PipelineActions::note_reductions(const Window& window,
                                      std::span<const std::int32_t> reductions) {
    if (!joint_) return;
    const auto batch_of = [&](std::int32_t b) -> const BatchPlan& {
        return window.batches[static_cast<std::size_t>(b - window.first_batch)];
    };
    for (const std::int32_t b : reductions) {
        const BatchPlan& batch = batch_of(b);
        over_after_ = std::max(over_after_, number(batch.last_microbatch) + 1);
        reductions_.push_back({b, batch.round, over_after_, batch.is_here()});
    }
    const Reduction* next_here = nullptr;
    for (std::size_t i = 0; i < reductions.size(); ++i) {
        Reduction& reduction = reductions_[reductions_.size() - 1 - i];
        if (reduction.is_here) {
            next_here = &reduction;
        } else if (next_here != nullptr && next_here->round == reduction.round) {
            reduction.after = next_here->after;
        }
    }
    note_needs(window);
}

void PipelineActions::note_needs(const Window& window) {
    std::map<std::int32_t, std::int64_t> place_of;
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
        place_of[reductions_[i].batch] = first_reduction_ + static_cast<std::int64_t>(i);
    }
    for (std::size_t i = 0; i < window.batches.size(); ++i) {
        const BatchPlan& batch = window.batches[i];
        std::int64_t& newest = sum_of_newest_[batch.adapter];
        if (batch.is_here()) {
            std::int64_t& needed = needs_[number(batch.first_microbatch)];
            needed = std::max(needed, newest);
        }
        if (batch.evaluation) {
            evaluated_ = std::max(evaluated_, newest);
            if (batch.is_here()) evaluations_[batch.adapter] = number(batch.last_microbatch) + 1;
        } else {
            const std::int64_t place =
                place_of.at(window.first_batch + static_cast<std::int32_t>(i));
            Reduction& reduction = reductions_[static_cast<std::size_t>(place - first_reduction_)];
            reduction.former = std::exchange(newest, place + 1);
            reduction.evaluated = evaluations_[batch.adapter];
        }
    }
}

/// Per batch of the window, backwards that end it on a stage.
std::vector<std::int32_t> PipelineActions::over_after(const Window& window) const {
    std::vector<std::int32_t> after;
    for (const BatchPlan& batch : window.batches)
        after.push_back(number(batch.last_microbatch) + 1);
    if (!joint_) return after;
    for (const Reduction& reduction : reductions_) {
        if (reduction.batch < window.first_batch) continue;
        after[static_cast<std::size_t>(reduction.batch - window.first_batch)] = reduction.after;
    }
    return after;
}

/// Place behind the last one that is reduced in the window on all replicas.
std::int64_t PipelineActions::due_in(const Window& window) const {
    if (window.drains) return noted_reductions();
    const std::int32_t last_round = window.first_round + window.rounds - 1;
    const auto later = std::find_if(reductions_.begin(), reductions_.end(),
                                    [&](const Reduction& r) { return r.round >= last_round; });
    return std::max(evaluated_, first_reduction_ + (later - reductions_.begin()));
}

void PipelineActions::step_to(std::int64_t place, StageSums& sums, StageActions& stage) const {
    for (; sums.stepped < place; ++sums.stepped) {
        LORATRAIN_CHECK(sums.stepped < sums.reduced, "a batch is to be stepped and not reduced");
        stage.compute_batch(reduction(sums.stepped).batch, ActionKind::step);
    }
}

void PipelineActions::reduce_what_it_can(StageSums& sums, StageActions& stage) const {
    for (; sums.reduced < noted_reductions(); ++sums.reduced) {
        const Reduction& next = reduction(sums.reduced);
        const bool over = next.after <= sums.ended;
        const bool adds_nothing = !next.is_here && next.former <= sums.stepped;
        if (next.evaluated > sums.forwarded || (!over && !adds_nothing)) return;
        step_to(next.former, sums, stage);
        stage.compute_batch(next.batch, ActionKind::reduce);
    }
}

void PipelineActions::forget_ended() {
    drop_entries_below(up_, order_.ended());
    drop_entries_below(down_, order_.ended());
    drop_entries_below(needs_, order_.ended());
    for (; !reductions_.empty(); reductions_.pop_front(), ++first_reduction_) {
        const bool over = std::all_of(sums_.begin(), sums_.end(), [this](const StageSums& sums) {
            return sums.stepped > first_reduction_;
        });
        if (!over) return;
    }
}

void PipelineActions::add_to(Window& window, std::span<const std::int32_t> reductions,
                             std::int32_t least_forwards, bool awaits) {
    note_carried(window);
    note_reductions(window, reductions);
    order_.add(window, over_after(window));
    const std::int64_t due = due_in(window);
    const ComputeOrder order = order_.advance(
        window.drains, due > first_reduction_ ? reduction(due - 1).after : 0, least_forwards);
    BatchList left;
    for (const auto& [adapter, newest] : newest_) left.push_back(newest.batch);
    std::sort(left.begin(), left.end());
    window.actions.clear();
    for (std::size_t s = 0; s < order.size(); ++s) {
        StageActions stage(view_, s, backwarded_[s]);
        StageSums& sums = sums_[s];
        for (const ComputeStep& compute : order[s]) {
            reduce_what_it_can(sums, stage);
            if (compute.backward) {
                stage.backward(compute.microbatch, carried_with(down_, compute.microbatch));
                ++backwarded_[s];
                sums.ended = compute.microbatch + 1;
            } else {
                const BatchList& up = carried_with(up_, compute.microbatch);
                stage.receive(compute.microbatch, up);
                const auto needs = needs_.find(compute.microbatch);
                if (needs != needs_.end()) step_to(needs->second, sums, stage);
                reduce_what_it_can(sums, stage);
                stage.forward(compute.microbatch, up);
                sums.forwarded = compute.microbatch + 1;
            }
        }
        reduce_what_it_can(sums, stage);
        LORATRAIN_CHECK(sums.reduced >= due, "batch ", reduction(sums.reduced).batch,
                        " is never over");
        if (joint_ && awaits) step_to(std::max(sums.stepped, evaluated_), sums, stage);
        if (window.drains) {
            step_to(noted_reductions(), sums, stage);
            stage.flush(left);
        }
        window.actions.push_back(stage.take());
    }
    window.peak_in_flight = order_.peak_in_flight();
    forget_ended();
}

void PipelineActions::end(AdapterId adapter) {
    const auto newest = newest_.find(adapter);
    if (newest != newest_.end()) newest->second.last_of_adapter = true;
}

std::size_t PipelineActions::size() const {
    return up_.size() + down_.size() + newest_.size() + reductions_.size() + needs_.size() +
           sum_of_newest_.size() + evaluations_.size() + order_.size();
}

}  // namespace loratrain

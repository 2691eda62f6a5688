#include "plan/schedule/pipeline_actions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

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

    void forward(std::int32_t microbatch, const BatchList& up) {
        Action action;
        action.microbatch = MicrobatchId{microbatch};
        action.slot = microbatch % slots_;
        if (!first_) message(action, ActionKind::recv_forward, before_, up);
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

    void reduce(std::int32_t batch) {
        Action action;
        action.batch = batch;
        compute(action, ActionKind::reduce);
        compute(action, ActionKind::step);
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
        for (const std::int32_t batch : batches) {
            Action action;
            action.batch = batch;
            compute(action, ActionKind::step);
        }
    }

    const std::int32_t& backwards_;
    std::int32_t slots_;
    bool first_;
    bool last_;
    std::int32_t before_;  ///< rank of the neighbour
    std::int32_t after_;
    std::vector<Action> actions_;
};

const BatchList& carried_with(const std::map<std::int32_t, BatchList>& lists,
                              std::int32_t microbatch) {
    static const BatchList none;
    const auto found = lists.find(microbatch);
    return found == lists.end() ? none : found->second;
}

/// Entries below `number` leave.
void drop_below(std::map<std::int32_t, BatchList>& lists, std::int32_t number) {
    lists.erase(lists.begin(), lists.lower_bound(number));
}

}  // namespace

PipelineActions::PipelineActions(const ReplicaView& view)
    : view_(view),
      joint_(view.plan.replicas.size() > 1),
      order_(view),
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
    carry_totals_of_ended(window.first_microbatch +
                          static_cast<std::int32_t>(window.microbatches.size()));
}

void PipelineActions::carry(AdapterId adapter, std::int32_t microbatch) {
    const auto newest = newest_.find(adapter);
    if (newest == newest_.end()) return;
    up_[microbatch].push_back(newest->second.batch);
    newest_.erase(newest);
}

/// `microbatches`: of the stream so far.
void PipelineActions::carry_totals_of_ended(std::int32_t microbatches) {
    for (auto entry = newest_.begin(); entry != newest_.end();) {
        const auto [adapter, newest] = *entry++;
        const std::int32_t behind = newest.last_microbatch + view_.replica.max_in_flight;
        if (newest.last_of_adapter && behind < microbatches) carry(adapter, behind);
    }
}

void PipelineActions::note_reductions(const Window& window,
                                      std::span<const std::int32_t> reductions) {
    if (!joint_) return;
    std::map<std::int32_t, std::int32_t> end_of_round;
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& end = end_of_round[batch.round];
        end = std::max(end, number(batch.last_microbatch) + 1);
    }
    for (const std::int32_t b : reductions) {
        const BatchPlan& batch = window.batches[static_cast<std::size_t>(b - window.first_batch)];
        over_after_ = std::max(over_after_, end_of_round[batch.round]);
        reductions_.push_back({b, batch.round, over_after_});
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

/// Those that the window's lists have.
std::vector<PipelineActions::Reduction> PipelineActions::take_due(const Window& window) {
    const std::int32_t last_round = window.first_round + window.rounds - 1;
    const auto later =
        std::find_if(reductions_.begin(), reductions_.end(),
                     [&](const Reduction& r) { return !window.drains && r.round >= last_round; });
    std::vector<Reduction> due(reductions_.begin(), later);
    reductions_.erase(reductions_.begin(), later);
    return due;
}

void PipelineActions::add_to(Window& window, std::span<const std::int32_t> reductions) {
    note_carried(window);
    note_reductions(window, reductions);
    order_.add(window, over_after(window));
    const std::vector<Reduction> due = take_due(window);
    const ComputeOrder order = order_.advance(window.drains, due.empty() ? 0 : due.back().after);
    BatchList left;
    for (const auto& [adapter, newest] : newest_) left.push_back(newest.batch);
    std::sort(left.begin(), left.end());
    window.actions.clear();
    for (std::size_t s = 0; s < order.size(); ++s) {
        StageActions stage(view_, s, backwarded_[s]);
        std::size_t reduced = 0;
        const auto reduce_what_is_over = [&] {
            for (; reduced < due.size() && due[reduced].after <= backwarded_[s]; ++reduced) {
                stage.reduce(due[reduced].batch);
            }
        };
        reduce_what_is_over();
        for (const ComputeStep& compute : order[s]) {
            if (compute.backward) {
                stage.backward(compute.microbatch, carried_with(down_, compute.microbatch));
                ++backwarded_[s];
                reduce_what_is_over();
            } else {
                stage.forward(compute.microbatch, carried_with(up_, compute.microbatch));
            }
        }
        LORATRAIN_CHECK(reduced == due.size(), "batch ", due[reduced].batch, " is never over");
        if (window.drains) stage.flush(left);
        window.actions.push_back(stage.take());
    }
    window.peak_in_flight = order_.peak_in_flight();
    drop_below(up_, order_.ended());
    drop_below(down_, order_.ended());
}

std::size_t PipelineActions::size() const {
    return up_.size() + down_.size() + newest_.size() + reductions_.size() + order_.size();
}

}  // namespace loratrain

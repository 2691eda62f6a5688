#include "plan/schedule/pipeline_actions.h"

#include <algorithm>
#include <utility>

#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

using BatchList = std::vector<std::int32_t>;

/// One stage's list. Microbatches take the activation slots and message buffers in turn: they are
/// forwarded in order and backwarded in order, no more under way than there are slots.
class StageActions {
  public:
    StageActions(const ReplicaView& view, std::size_t stage)
        : slots_(slot_count(view, stage)),
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
        if (!first_ || !last_) action.buffer = microbatch % gradient_buffers;
        if (!last_) message(action, ActionKind::recv_backward, after_, down);
        action.slot = microbatch % slots_;
        compute(action, ActionKind::backward);
        action.slot = -1;
        if (!first_) message(action, ActionKind::send_backward, before_, down);
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

PipelineActions::PipelineActions(const ReplicaView& view, bool evaluation)
    : view_(view), evaluation_(evaluation), order_(view, evaluation) {}

void PipelineActions::note_carried(const Window& window) {
    if (evaluation_) return;
    for (std::size_t i = 0; i < window.batches.size(); ++i) {
        const BatchPlan& batch = window.batches[i];
        const std::int32_t b = window.first_batch + static_cast<std::int32_t>(i);
        const auto [before, first] = newest_.try_emplace(batch.adapter, b);
        if (!first) up_[number(batch.first_microbatch)].push_back(before->second);
        before->second = b;
        down_[number(batch.last_microbatch)].push_back(b);
    }
}

void PipelineActions::add_to(Window& window) {
    note_carried(window);
    order_.add(window);
    const ComputeOrder order = order_.advance(window.drains);
    BatchList left;
    for (const auto& [adapter, batch] : newest_) left.push_back(batch);
    std::sort(left.begin(), left.end());
    window.actions.clear();
    for (std::size_t s = 0; s < order.size(); ++s) {
        StageActions stage(view_, s);
        for (const ComputeStep& compute : order[s]) {
            if (compute.backward) {
                stage.backward(compute.microbatch, carried_with(down_, compute.microbatch));
            } else {
                stage.forward(compute.microbatch, carried_with(up_, compute.microbatch));
            }
        }
        if (window.drains) stage.flush(left);
        window.actions.push_back(stage.take());
    }
    window.peak_in_flight = order_.peak_in_flight();
    drop_below(up_, order_.ended());
    drop_below(down_, order_.ended());
}

std::size_t PipelineActions::size() const {
    return up_.size() + down_.size() + newest_.size() + order_.size();
}

}  // namespace loratrain

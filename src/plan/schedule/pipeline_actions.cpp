#include "plan/schedule/pipeline_actions.h"

#include <algorithm>
#include <utility>

namespace loratrain {

namespace {

using BatchList = std::vector<std::int32_t>;

class StageActions {
  public:
    StageActions(bool first, bool last) : first_(first), last_(last) {}

    void forward(std::int32_t microbatch, const BatchList& up) {
        if (!first_) add(ActionKind::recv_forward, microbatch, up);
        step(up);
        add(ActionKind::forward, microbatch);
        if (!last_) add(ActionKind::send_forward, microbatch, up);
    }

    void backward(std::int32_t microbatch, const BatchList& down) {
        if (!last_) add(ActionKind::recv_backward, microbatch, down);
        add(ActionKind::backward, microbatch);
        if (!first_) add(ActionKind::send_backward, microbatch, down);
    }

    void flush(const BatchList& left) {
        if (left.empty()) return;
        if (first_) step(left);
        if (!first_) add(ActionKind::recv_norms, 0, left);
        if (!last_) add(ActionKind::send_norms, 0, left);
        if (!first_) step(left);
    }

    std::vector<Action> take() { return std::move(actions_); }

  private:
    void add(ActionKind kind, std::int32_t microbatch, const BatchList& carried = {}) {
        actions_.push_back({kind, MicrobatchId{microbatch}, -1, carried});
    }
    void step(const BatchList& batches) {
        for (const std::int32_t batch : batches) {
            actions_.push_back({ActionKind::step, MicrobatchId{}, batch, {}});
        }
    }

    bool first_;
    bool last_;
    std::vector<Action> actions_;
};

}  // namespace

PipelineActions::PipelineActions(const ReplicaView& view, bool evaluation)
    : stages_(view.replica.stages.size()), evaluation_(evaluation), order_(view, evaluation) {}

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
    for (std::size_t s = 0; s < stages_; ++s) {
        StageActions stage(s == 0, s + 1 == stages_);
        for (const ComputeStep& compute : order[s]) {
            if (compute.backward) {
                stage.backward(compute.microbatch, down_[compute.microbatch]);
            } else {
                stage.forward(compute.microbatch, up_[compute.microbatch]);
            }
        }
        if (window.drains) stage.flush(left);
        window.actions.push_back(stage.take());
    }
    window.peak_in_flight = order_.peak_in_flight();
}

}  // namespace loratrain

#include "plan/pipeline_actions.h"

#include <utility>

namespace loratrain {

namespace {

using BatchList = std::vector<std::int32_t>;

/// Which batches' sums travel with which message.
struct Carried {
    std::vector<BatchList> up;    ///< per microbatch: totals with its forward
    std::vector<BatchList> down;  ///< per microbatch: partial sums with its backward
    BatchList flush;              ///< totals at the end of the window
};

Carried carried_sums(const Plan& plan, const Window& window) {
    Carried carried;
    carried.up.resize(window.microbatches.size());
    carried.down.resize(window.microbatches.size());
    if (window.evaluation) return carried;
    std::vector<bool> stepped(window.batches.size(), false);
    BatchList previous(plan.adapters.size(), -1);
    for (std::size_t b = 0; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        std::int32_t& before = previous[index(batch.adapter)];
        if (before >= 0) {
            carried.up[index(batch.first_microbatch)].push_back(before);
            stepped[static_cast<std::size_t>(before)] = true;
        }
        before = static_cast<std::int32_t>(b);
        carried.down[index(batch.last_microbatch)].push_back(before);
    }
    for (std::size_t b = 0; b < stepped.size(); ++b) {
        if (!stepped[b]) carried.flush.push_back(static_cast<std::int32_t>(b));
    }
    return carried;
}

class StageActions {
  public:
    StageActions(const Carried& carried, bool first, bool last)
        : carried_(carried), first_(first), last_(last) {}

    void forward(std::int32_t microbatch) {
        const BatchList& up = carried_.up[static_cast<std::size_t>(microbatch)];
        if (!first_) add(ActionKind::recv_forward, microbatch, up);
        step(up);
        add(ActionKind::forward, microbatch);
        if (!last_) add(ActionKind::send_forward, microbatch, up);
    }

    void backward(std::int32_t microbatch) {
        const BatchList& down = carried_.down[static_cast<std::size_t>(microbatch)];
        if (!last_) add(ActionKind::recv_backward, microbatch, down);
        add(ActionKind::backward, microbatch);
        if (!first_) add(ActionKind::send_backward, microbatch, down);
    }

    void flush() {
        if (carried_.flush.empty()) return;
        if (first_) step(carried_.flush);
        if (!first_) add(ActionKind::recv_norms, 0, carried_.flush);
        if (!last_) add(ActionKind::send_norms, 0, carried_.flush);
        if (!first_) step(carried_.flush);
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

    const Carried& carried_;
    bool first_;
    bool last_;
    std::vector<Action> actions_;
};

}  // namespace

void add_pipeline_actions(const Plan& plan, Window& window) {
    ComputeOrder order = compute_order(plan, window);
    const Carried carried = carried_sums(plan, window);
    window.actions.clear();
    for (std::size_t s = 0; s < order.stages.size(); ++s) {
        StageActions stage(carried, s == 0, s + 1 == order.stages.size());
        for (const ComputeStep& compute : order.stages[s]) {
            if (compute.backward) {
                stage.backward(compute.microbatch);
            } else {
                stage.forward(compute.microbatch);
            }
        }
        stage.flush();
        window.actions.push_back(stage.take());
    }
    window.peak_in_flight = std::move(order.peak_in_flight);
}

}  // namespace loratrain

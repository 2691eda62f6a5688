#include "plan/schedule/compute_order.h"

#include <algorithm>

namespace loratrain {

namespace {

PipelineLoad empty_load(const ReplicaView& view, bool evaluation) {
    PipelineLoad load;
    load.stages = static_cast<std::int32_t>(view.replica.stages.size());
    load.max_in_flight = view.replica.max_in_flight;
    load.forward_only = evaluation;
    return load;
}

}  // namespace

PipelineOrder::PipelineOrder(const ReplicaView& view, bool evaluation)
    : view_(view),
      finished_after_(view.plan.adapters.size(), 0),
      load_(empty_load(view, evaluation)),
      schedule_(load_) {}

void PipelineOrder::add(const Window& window) {
    for (const Microbatch& microbatch : window.microbatches) {
        add_times(load_, view_.plan.costs, view_.replica.stages, view_.replica.recompute,
                  loads_of(microbatch));
        load_.required.push_back(0);
    }
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& before = finished_after_[index(batch.adapter)];
        const auto first = static_cast<std::size_t>(number(batch.first_microbatch) - load_.first);
        std::int32_t& needed = load_.required[first];
        needed = std::max(needed, before);
        before = number(batch.last_microbatch) + 1;
    }
}

ComputeOrder PipelineOrder::advance(bool to_the_end) {
    ComputeOrder order(view_.replica.stages.size());
    schedule_.advance(to_the_end, &order);
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

}  // namespace loratrain

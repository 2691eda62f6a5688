#include "plan/schedule/compute_order.h"

#include <algorithm>

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

}  // namespace loratrain

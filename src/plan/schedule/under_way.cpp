#include "plan/schedule/under_way.h"

#include "base/error.h"

namespace loratrain {

void UnderWay::append(const Window& window) {
    if (window.begins) *this = {};
    LORATRAIN_CHECK(
        next_batch_ == window.first_batch && microbatches_.end() == window.first_microbatch,
        "the window does not continue the one before");
    leave();
    for (const BatchPlan& batch : window.batches) {
        number_of_[{batch.adapter, batch.step, batch.evaluation}] = next_batch_;
        batches_[next_batch_++] = {batch, batch.evaluation && !batch.is_here()};
    }
    for (const Microbatch& microbatch : window.microbatches) microbatches_.push_back(microbatch);
}

void UnderWay::leave() {
    microbatches_.drop_below(backwarded_);
    std::erase_if(batches_, [](const auto& entry) { return entry.second.over; });
    std::erase_if(number_of_, [&](const auto& entry) { return !batches_.contains(entry.second); });
}

void UnderWay::performed(const Action& action) {
    if (action.kind == ActionKind::backward) backwarded_ = number(action.microbatch) + 1;
    if (action.kind == ActionKind::step) batches_.at(action.batch).over = true;
    if (action.kind != ActionKind::forward || !microbatch(action.microbatch).evaluation) return;
    for (const Segment& segment : microbatch(action.microbatch).segments) {
        Batch& batch = batches_.at(batch_of(microbatch(action.microbatch), segment));
        batch.over = batch.plan.last_microbatch == action.microbatch;
    }
}

const BatchPlan& UnderWay::batch(std::int32_t number) const {
    const auto found = batches_.find(number);
    LORATRAIN_CHECK(found != batches_.end(), "batch ", number, " is not under way");
    return found->second.plan;
}

std::optional<std::int32_t> UnderWay::step_to_take(AdapterId adapter) const {
    std::optional<std::int32_t> newest;
    for (const auto& [number, batch] : batches_) {
        const bool open = !batch.plan.evaluation && !batch.over;
        if (open && batch.plan.adapter == adapter) newest = batch.plan.step;
    }
    return newest;
}

std::int32_t UnderWay::batch_of(const Microbatch& microbatch, const Segment& segment) const {
    return number_of_.at({segment.adapter, segment.step, microbatch.evaluation});
}

}  // namespace loratrain

#include "plan/compute_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "plan/cost_model.h"

namespace loratrain {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

using TargetShares = std::map<std::pair<AdapterId, std::int32_t>, double>;

/// Labelled rows of a sample are taken to be as frequent as in its whole batch.
TargetShares target_shares(const Window& window) {
    TargetShares shares;
    for (const BatchPlan& batch : window.batches) {
        shares[{batch.adapter, batch.step}] =
            static_cast<double>(batch.targets) /
            static_cast<double>(std::max<std::int64_t>(1, batch.tokens));
    }
    return shares;
}

MicrobatchLoad load_of(const Microbatch& microbatch, const TargetShares& shares) {
    MicrobatchLoad load;
    double targets = 0.0;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            load.tokens += sample.tokens;
            load.squares += static_cast<double>(sample.tokens) * sample.tokens;
        }
        const auto share = shares.find({segment.adapter, segment.step});
        if (share != shares.end()) targets += share->second * static_cast<double>(segment.tokens());
    }
    load.targets = static_cast<std::int64_t>(targets);
    return load;
}

}  // namespace

PipelineOrder::PipelineOrder(const Plan& plan, bool evaluation)
    : plan_(plan),
      evaluation_(evaluation),
      finished_after_(plan.adapters.size(), 0),
      stages_(plan.replica.stages.size()),
      peak_in_flight_(stages_.size(), 0) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
        stages_[s].limit = std::max(1, plan.max_in_flight - static_cast<std::int32_t>(s));
    }
}

void PipelineOrder::add(const Window& window) {
    const TargetShares shares = target_shares(window);
    for (const Microbatch& microbatch : window.microbatches) {
        loads_.push_back(load_of(microbatch, shares));
    }
    required_.resize(loads_.size(), 0);
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& before = finished_after_[index(batch.adapter)];
        std::int32_t& needed = required_[index(batch.first_microbatch)];
        needed = std::max(needed, before);
        before = number(batch.last_microbatch) + 1;
    }
    for (StageState& stage : stages_) {
        stage.forward_end.resize(loads_.size(), never);
        stage.backward_end.resize(loads_.size(), never);
    }
}

ComputeOrder PipelineOrder::advance(bool to_the_end) {
    order_.assign(stages_.size(), {});
    while (now_ != never) {
        for (std::size_t s = 0; s < stages_.size(); ++s) start_ready(s);
        if (!to_the_end && first_stage_needs_more()) return std::move(order_);
        now_ = next_end();
    }
    const auto count = static_cast<std::int32_t>(loads_.size());
    for (const StageState& stage : stages_) {
        LORATRAIN_CHECK(stage.forwarded == count && (evaluation_ || stage.backwarded == count),
                        "the pipeline simulation came to a halt");
    }
    return std::move(order_);
}

/// Its next forward may be of a microbatch that is not known yet.
bool PipelineOrder::first_stage_needs_more() const {
    return stages_.front().forwarded == static_cast<std::int32_t>(loads_.size());
}

void PipelineOrder::start_ready(std::size_t s) {
    if (stages_[s].busy_until > now_) return;
    const bool forward = forward_ready(s);
    const bool backward = backward_ready(s);
    if (forward || backward) start(s, backward && !(s == 0 && forward));
}

bool PipelineOrder::forward_ready(std::size_t s) const {
    const StageState& stage = stages_[s];
    if (stage.forwarded == static_cast<std::int32_t>(loads_.size())) return false;
    const auto next = static_cast<std::size_t>(stage.forwarded);
    if (s > 0 && stages_[s - 1].forward_end[next] > now_) return false;
    if (evaluation_) return true;
    if (s == 0 && stage.backwarded < required_[next]) return false;
    return stage.forwarded - stage.backwarded < stage.limit;
}

bool PipelineOrder::backward_ready(std::size_t s) const {
    const StageState& stage = stages_[s];
    if (evaluation_ || stage.backwarded == stage.forwarded) return false;
    const auto next = static_cast<std::size_t>(stage.backwarded);
    return s + 1 == stages_.size() || stages_[s + 1].backward_end[next] <= now_;
}

void PipelineOrder::start(std::size_t s, bool backward) {
    StageState& stage = stages_[s];
    const StagePlan& plan = plan_.replica.stages[s];
    const std::int32_t microbatch = backward ? stage.backwarded++ : stage.forwarded++;
    const auto m = static_cast<std::size_t>(microbatch);
    const double seconds = backward
                               ? backward_seconds(plan_.costs, plan, loads_[m], plan_.recompute)
                               : forward_seconds(plan_.costs, plan, loads_[m]);
    stage.busy_until = now_ + seconds;
    (backward ? stage.backward_end : stage.forward_end)[m] = stage.busy_until;
    order_[s].push_back({backward, microbatch});
    const std::int32_t held = evaluation_ ? 1 : stage.forwarded - stage.backwarded;
    if (!backward) peak_in_flight_[s] = std::max(peak_in_flight_[s], held);
}

double PipelineOrder::next_end() const {
    double next = never;
    for (const StageState& stage : stages_) {
        if (stage.busy_until > now_) next = std::min(next, stage.busy_until);
    }
    return next;
}

}  // namespace loratrain

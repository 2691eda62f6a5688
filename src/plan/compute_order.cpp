#include "plan/compute_order.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "plan/partition_layers.h"

namespace loratrain {

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// Costs of the stages per token relative to each other, small integers so that times stay exact.
std::vector<std::int64_t> relative_costs(const Plan& plan) {
    const std::vector<StagePlan>& stages = plan.replica.stages;
    double total = 0.0;
    for (const StagePlan& s : stages) total += static_cast<double>(stage_cost(plan.model, s));
    std::vector<std::int64_t> costs;
    for (const StagePlan& s : stages) {
        const double share = static_cast<double>(stage_cost(plan.model, s)) / total;
        costs.push_back(
            1 + static_cast<std::int64_t>(1000.0 * share * static_cast<double>(stages.size())));
    }
    return costs;
}

/// Per microbatch: how many backwards the first stage must have finished before its forward.
std::vector<std::int32_t> required_backwards(const Plan& plan, const Window& window) {
    std::vector<std::int32_t> required(window.microbatches.size(), 0);
    std::vector<std::int32_t> finished_after(plan.adapters.size(), 0);
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& before = finished_after[index(batch.adapter)];
        std::int32_t& needed = required[index(batch.first_microbatch)];
        needed = std::max(needed, before);
        before = number(batch.last_microbatch) + 1;
    }
    return required;
}

struct StageState {
    std::int64_t busy_until = 0;
    std::int32_t forwarded = 0;
    std::int32_t backwarded = 0;
    std::int32_t limit = 1;
    std::int64_t cost = 1;
    std::vector<std::int64_t> forward_end;
    std::vector<std::int64_t> backward_end;
};

class Simulation {
  public:
    Simulation(const Plan& plan, const Window& window)
        : window_(window),
          required_(required_backwards(plan, window)),
          count_(static_cast<std::int32_t>(window.microbatches.size())) {
        for (const Microbatch& microbatch : window.microbatches) {
            tokens_.push_back(microbatch.tokens());
        }
        const std::vector<std::int64_t> costs = relative_costs(plan);
        for (std::size_t s = 0; s < costs.size(); ++s) {
            StageState state;
            state.limit = std::max(1, plan.max_in_flight - static_cast<std::int32_t>(s));
            state.cost = costs[s];
            state.forward_end.assign(tokens_.size(), never);
            state.backward_end.assign(tokens_.size(), never);
            stages_.push_back(std::move(state));
        }
        order_.stages.resize(costs.size());
        order_.peak_in_flight.assign(costs.size(), 0);
    }

    ComputeOrder run() {
        std::int64_t now = 0;
        while (now != never) {
            for (std::size_t s = 0; s < stages_.size(); ++s) start_ready(s, now);
            now = next_end(now);
        }
        for (const StageState& stage : stages_) {
            LORATRAIN_CHECK(
                stage.forwarded == count_ && (window_.evaluation || stage.backwarded == count_),
                "the pipeline simulation came to a halt");
        }
        return std::move(order_);
    }

  private:
    void start_ready(std::size_t s, std::int64_t now) {
        if (stages_[s].busy_until > now) return;
        const bool forward = forward_ready(s, now);
        const bool backward = backward_ready(s, now);
        if (backward && !(s == 0 && forward)) {
            start_backward(s, now);
        } else if (forward) {
            start_forward(s, now);
        }
    }

    bool forward_ready(std::size_t s, std::int64_t now) const {
        const StageState& stage = stages_[s];
        if (stage.forwarded == count_) return false;
        const auto next = static_cast<std::size_t>(stage.forwarded);
        if (s > 0 && stages_[s - 1].forward_end[next] > now) return false;
        if (window_.evaluation) return true;
        if (s == 0 && stage.backwarded < required_[next]) return false;
        return stage.forwarded - stage.backwarded < stage.limit;
    }

    bool backward_ready(std::size_t s, std::int64_t now) const {
        const StageState& stage = stages_[s];
        if (window_.evaluation || stage.backwarded == stage.forwarded) return false;
        const auto next = static_cast<std::size_t>(stage.backwarded);
        return s + 1 == stages_.size() || stages_[s + 1].backward_end[next] <= now;
    }

    void start_forward(std::size_t s, std::int64_t now) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = stage.forwarded++;
        const auto i = static_cast<std::size_t>(microbatch);
        stage.busy_until = stage.forward_end[i] = now + tokens_[i] * stage.cost;
        order_.stages[s].push_back({false, microbatch});
        const std::int32_t held = window_.evaluation ? 1 : stage.forwarded - stage.backwarded;
        order_.peak_in_flight[s] = std::max(order_.peak_in_flight[s], held);
    }

    void start_backward(std::size_t s, std::int64_t now) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = stage.backwarded++;
        const auto i = static_cast<std::size_t>(microbatch);
        stage.busy_until = stage.backward_end[i] = now + 2 * tokens_[i] * stage.cost;
        order_.stages[s].push_back({true, microbatch});
    }

    std::int64_t next_end(std::int64_t now) const {
        std::int64_t next = never;
        for (const StageState& stage : stages_) {
            if (stage.busy_until > now) next = std::min(next, stage.busy_until);
        }
        return next;
    }

    const Window& window_;
    std::vector<std::int32_t> required_;
    std::int32_t count_;
    std::vector<std::int64_t> tokens_;
    std::vector<StageState> stages_;
    ComputeOrder order_;
};

}  // namespace

ComputeOrder compute_order(const Plan& plan, const Window& window) {
    return Simulation(plan, window).run();
}

}  // namespace loratrain

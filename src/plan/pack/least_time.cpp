#include "plan/pack/least_time.h"

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "plan/cost/cost_model.h"

namespace loratrain {

namespace {

constexpr double nanoseconds_of_a_second = 1e9;
constexpr double rounded_by = 1.0;  // nanoseconds, of a microbatch's times

/// What the device computes, as if nothing ever kept it waiting.
CostModel undisturbed(CostModel costs) {
    costs.host = {};
    costs.layer_transfer = 0.0;
    costs.offload_per_token = 0.0;
    return costs;
}

CostModel of_rows_alone(CostModel costs) {
    for (CostLine* line : {&costs.layer_forward, &costs.layer_backward, &costs.head}) {
        line->fixed = line->per_segment = 0.0;
    }
    costs.layer_traffic = 0.0;
    return costs;
}

AdapterLoads all_rows(const BlockItems& block) {
    AdapterLoads loads;
    for (const BlockItem& item : block.items) {
        loads.add(block.batch(item.batch).adapter, {item.tokens, item.squares, item.targets});
    }
    return loads;
}

}  // namespace

LeastTime::LeastTime(const PackRules& rules, const BlockItems& block) {
    const CostModel costs = undisturbed(rules.costs);
    const CostModel of_rows = of_rows_alone(costs);
    const AdapterLoads rows = all_rows(block);
    for (const StagePlan& stage : rules.stages) {
        stages_.push_back(
            {nanoseconds_of_a_second * stage_seconds(of_rows, stage, rows, rules.recompute),
             nanoseconds_of_a_second *
                 stage_seconds(costs, stage, AdapterLoads(), rules.recompute)});
    }
}

std::int64_t LeastTime::in(std::int64_t bins) const {
    double most = 0.0;
    for (const Stage& stage : stages_) {
        most = std::max(most, stage.rows + static_cast<double>(bins) * (stage.fixed - rounded_by));
    }
    constexpr double summed_otherwise = 1.0 - 1e-9;
    return static_cast<std::int64_t>(std::floor(most * summed_otherwise));
}

std::int64_t least_microbatches(const BlockItems& block, std::int64_t most_cost) {
    std::int64_t largest = std::max<std::int64_t>(1, most_cost);
    for (const BlockItem& item : block.items) largest = std::max(largest, item.cost);
    return ceil_div(block.cost, largest);
}

}  // namespace loratrain

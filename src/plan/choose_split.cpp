#include "plan/choose_split.h"

#include <algorithm>

#include "plan/cost_model.h"
#include "plan/partition_layers.h"

namespace loratrain {

namespace {

double slowest_seconds(const std::vector<StagePlan>& stages, const CostModel& costs,
                       const MicrobatchLoad& load, Recompute recompute) {
    double most = 0.0;
    for (const StagePlan& stage : stages) {
        most = std::max(most, forward_seconds(costs, stage, load) +
                                  backward_seconds(costs, stage, load, recompute));
    }
    return most;
}

}  // namespace

std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const MicrobatchLoad& load, Recompute recompute) {
    std::vector<StagePlan> kept = partition_layers(layers, stages, usual, load, recompute);
    std::vector<StagePlan> fastest = partition_layers(layers, stages, measured, load, recompute);
    const bool gains = slowest_seconds(fastest, measured, load, recompute) <
                       (1.0 - split_gain) * slowest_seconds(kept, measured, load, recompute);
    return gains ? fastest : kept;
}

}  // namespace loratrain

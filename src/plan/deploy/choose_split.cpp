#include "plan/deploy/choose_split.h"

#include "plan/cost/cost_model.h"
#include "plan/deploy/partition_layers.h"
#include "plan/deploy/share_layers.h"

namespace loratrain {

namespace {

std::vector<StagePlan> split_by(const CostModel& costs, std::int32_t layers, std::int32_t stages,
                                const AdapterLoads& loads, Recompute recompute) {
    return share_layers(partition_layers(layers, stages, costs, loads.total, recompute), costs,
                        loads, recompute);
}

}  // namespace

std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const AdapterLoads& loads, Recompute recompute) {
    std::vector<StagePlan> kept = split_by(usual, layers, stages, loads, recompute);
    if (measured == usual) return kept;
    std::vector<StagePlan> fastest = split_by(measured, layers, stages, loads, recompute);
    const bool gains = slowest_seconds(measured, fastest, loads, recompute) <
                       (1.0 - split_gain) * slowest_seconds(measured, kept, loads, recompute);
    return gains ? fastest : kept;
}

}  // namespace loratrain

#include "plan/deploy/partition_layers.h"

#include <algorithm>
#include <utility>

#include "plan/cost/cost_model.h"

namespace loratrain {

namespace {

std::vector<StagePlan> split_layers(std::int32_t layers, std::int32_t stages,
                                    std::int32_t last_layers) {
    std::vector<StagePlan> result(static_cast<std::size_t>(stages));
    const std::int32_t others = stages - 1;
    std::int32_t first = 0;
    for (std::int32_t s = 0; s < stages; ++s) {
        StagePlan& stage = result[static_cast<std::size_t>(s)];
        const std::int32_t shared = layers - last_layers;
        stage.rank = s;
        stage.first_layer = first;
        stage.layer_count =
            s == others ? last_layers : shared / others + (s < shared % others ? 1 : 0);
        stage.has_embedding = s == 0;
        stage.has_head = s == others;
        first += stage.layer_count;
    }
    return result;
}

/// (largest time, spread of the times)
std::pair<double, double> badness(const std::vector<StagePlan>& stages, const CostModel& costs,
                                  const MicrobatchLoad& load, Recompute recompute) {
    double most = 0.0;
    double least = 0.0;
    for (const StagePlan& stage : stages) {
        const double seconds = stage_seconds(costs, stage, load, recompute);
        most = std::max(most, seconds);
        least = stage.rank == 0 ? seconds : std::min(least, seconds);
    }
    return {most, most - least};
}

}  // namespace

std::vector<StagePlan> partition_layers(std::int32_t layers, std::int32_t stages,
                                        const CostModel& costs, const MicrobatchLoad& load,
                                        Recompute recompute) {
    if (stages == 1) return split_layers(layers, 1, layers);
    std::vector<StagePlan> best = split_layers(layers, stages, 1);
    for (std::int32_t last = 2; last <= layers - (stages - 1); ++last) {
        std::vector<StagePlan> candidate = split_layers(layers, stages, last);
        if (badness(candidate, costs, load, recompute) < badness(best, costs, load, recompute)) {
            best = std::move(candidate);
        }
    }
    return best;
}

}  // namespace loratrain

#include "plan/partition_layers.h"

#include <algorithm>
#include <tuple>

namespace loratrain {

namespace {

std::vector<StagePlan> split(std::int32_t layers, std::int32_t stages, std::int32_t last_layers) {
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

/// (largest cost, spread of the costs)
std::pair<std::int64_t, std::int64_t> badness(const ModelSpec& model,
                                              const std::vector<StagePlan>& stages) {
    std::int64_t most = 0;
    std::int64_t least = stage_cost(model, stages.front());
    for (const StagePlan& stage : stages) {
        most = std::max(most, stage_cost(model, stage));
        least = std::min(least, stage_cost(model, stage));
    }
    return {most, most - least};
}

}  // namespace

std::int64_t stage_cost(const ModelSpec& model, const StagePlan& stage) {
    const std::int64_t head = model.vocab_size * model.hidden_size;
    const std::int64_t layer = (matmul_parameters(model) - head) / model.layers;
    return stage.layer_count * layer + (stage.has_head ? head : 0);
}

std::vector<StagePlan> partition_layers(const ModelSpec& model, std::int32_t stages) {
    const auto layers = static_cast<std::int32_t>(model.layers);
    if (stages == 1) return split(layers, 1, layers);
    std::vector<StagePlan> best = split(layers, stages, 1);
    for (std::int32_t last = 2; last <= layers - (stages - 1); ++last) {
        std::vector<StagePlan> candidate = split(layers, stages, last);
        if (badness(model, candidate) < badness(model, best)) best = std::move(candidate);
    }
    return best;
}

}  // namespace loratrain

#include "plan/stage_layers.h"

namespace loratrain {

LayerRange layers_of(const StagePlan& stage, AdapterId adapter) {
    LayerRange range{stage.first_layer, stage.layer_count};
    if (!stage.first_layer_adapters.contains(adapter)) {
        ++range.first;
        --range.count;
    }
    if (!stage.last_layer_adapters.contains(adapter)) --range.count;
    return range;
}

LayerRange state_layers(const StagePlan& stage, AdapterId adapter) {
    LayerRange range = layers_of(stage, adapter);
    if (stage.has_head) ++range.count;
    if (stage.has_embedding) {
        --range.first;
        ++range.count;
    }
    return range;
}

LayerRange all_state_layers(const ModelSpec& model) {
    return {embedding_layer, static_cast<std::int32_t>(model.layers) + 2};
}

AdapterSpan adapters_in(const StagePlan& stage, std::int32_t layer) {
    if (layer == 0) return stage.first_layer_adapters;
    if (layer + 1 == stage.layer_count) return stage.last_layer_adapters;
    return {};
}

std::int32_t whole_layers(const StagePlan& stage) {
    const std::int32_t shared = (stage.first_layer_adapters.is_all() ? 0 : 1) +
                                (stage.last_layer_adapters.is_all() ? 0 : 1);
    return stage.layer_count - shared;
}

}  // namespace loratrain

#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace loratrain {

/// Layers [first, first + count) of the model.
struct LayerRange {
    std::int32_t first = 0;
    std::int32_t count = 0;
};

/// The layers in which a stage computes the adapter.
LayerRange layers_of(const StagePlan& stage, AdapterId adapter);

/// And those of outer_linears, where the stage has the head or the embedding: where it holds state
/// of the adapter.
LayerRange state_layers(const StagePlan& stage, AdapterId adapter);
/// All of a model, with those.
LayerRange all_state_layers(const ModelSpec& model);

/// The adapters that a stage computes in a layer, counted from its first one.
AdapterSpan adapters_in(const StagePlan& stage, std::int32_t layer);

/// Layers of the stage that compute all adapters.
std::int32_t whole_layers(const StagePlan& stage);

}  // namespace loratrain

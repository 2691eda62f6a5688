#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace loratrain {

/// Which layers a stage computes and holds state of, for each adapter.

/// Layers [first, first + count) of the model.
struct LayerRange {
    std::int32_t first = 0;
    std::int32_t count = 0;
};

/// The layers in which a stage computes the adapter.
LayerRange layers_of(const StagePlan& stage, AdapterId adapter);

/// The layers in which a stage holds state of the adapter: with those of outer_linears, if the
/// stage has the head or the embedding.
LayerRange state_layers(const StagePlan& stage, AdapterId adapter);
/// All such layers of a model.
LayerRange all_state_layers(const ModelSpec& model);

/// The adapters that a stage computes in a layer. `layer`: from the stage's first one.
AdapterSpan adapters_in(const StagePlan& stage, std::int32_t layer);

/// Number of the stage's layers that compute all adapters.
std::int32_t whole_layers(const StagePlan& stage);

}  // namespace loratrain

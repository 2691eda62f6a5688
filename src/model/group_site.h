#pragma once

#include <cstdint>

#include "model/frozen_weights.h"
#include "model/layer_rows.h"

namespace loratrain {

/// A linear group of a layer of the stage, and the rows that it is applied to.
struct GroupSite {
    GroupWeights& weights;
    LinearGroup group;
    std::int32_t layer;  ///< counted from the stage's first layer
    const LayerRows& rows;
};

}  // namespace loratrain

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/ops/lora.h"
#include "model/frozen_weights.h"
#include "model/layer_rows.h"

namespace loratrain {

/// A linear group of a layer of the stage, and the rows that it is applied to.
struct GroupSite {
    GroupWeights& weights;
    LinearGroup group;
    std::int32_t layer;  ///< counted from the stage's first layer
    const LayerRows& rows;

    int count() const { return weights.shape.count; }
};

/// A matrix for each linear of a group.
using PerLinear = std::array<TensorView, most_group_linears>;

/// A linear of a group, and the factors that the adapters of the group's rows have on it.
struct LinearSite {
    const GroupSite* group = nullptr;
    Linear linear{};
    LinearShape shape;
    std::int64_t first = 0;       ///< its rows begin there in the group's matrix
    std::vector<LoraSlot> slots;  ///< one per segment
    TensorView s;                 ///< S or dS [T, R]
    TensorView w;                 ///< W [N, K] where the product has just read it, else nothing

    const LayerRows& rows() const { return group->rows; }
    /// Its columns of a group's output or gradient.
    TensorView columns_of(const TensorView& y) const { return y.col_range(first, shape.out); }
};

}  // namespace loratrain

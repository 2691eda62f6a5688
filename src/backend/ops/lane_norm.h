#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace loratrain {

/// RmsNorm of rows of which each lane has some columns. Sums over a row are made by row_dots of the
/// lane's columns and added up over the lanes before the norm reads them.

/// sums_t = sum over j of a_tj (w_j + weight_offset) b_tj; without a weight of a_tj b_tj.
struct RowDots {
    TensorView a;
    TensorView b;
    const void* weight = nullptr;  ///< compute_dtype(); null = 1 each
    float weight_offset = 0.0F;
    TensorView sums;  ///< [T, 1] fp32
};

/// y_t = x_t / sqrt(squares_t / columns + eps) * (w + weight_offset). y may alias x.
struct LaneNorm {
    TensorView x;
    const void* weight = nullptr;  ///< of x's columns
    float eps = 1e-6F;
    TensorView squares;        ///< [T, 1] fp32: sums of x² over all lanes
    std::int64_t columns = 1;  ///< of all lanes together
    TensorView y;
    float weight_offset = 0.0F;
};

/// dx = gradient of LaneNorm with respect to x; weights are frozen. dx may alias dy. Lanes that
/// have the same columns of x each have a part of dy, and their dx add up to the gradient, if
/// `columns` counts these columns once for each lane.
struct LaneNormBackward {
    LaneNorm of;      ///< y is not used
    TensorView dots;  ///< [T, 1] fp32: sums of x (w + weight_offset) dy over all lanes
    TensorView dy;
    TensorView dx;
};

}  // namespace loratrain

#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Norms of rows of which each lane has some columns (src/backend/ops/lane_norm.h).

/// A number for each row, `stride` apart.
struct RowSums {
    float* data = nullptr;
    std::int64_t stride = 1;
};

/// sums_t = sum over j of a_tj (weight_j + weight_offset) b_tj; without a weight of a_tj b_tj.
/// weight: of a's type.
struct RowDotsParams {
    Matrix a;
    Matrix b;
    const void* weight = nullptr;
    float weight_offset = 0.0F;
    RowSums sums;
};
cudaError_t row_dots(cudaStream_t stream, const RowDotsParams& params);

/// y_t = x_t / sqrt(squares_t / columns + eps) * (weight + weight_offset). y may alias x.
struct LaneNormParams {
    Matrix x;
    const void* weight = nullptr;
    float eps = 0.0F;
    RowSums squares;
    float columns = 1.0F;
    Matrix y;
    float weight_offset = 0.0F;
};
cudaError_t lane_norm(cudaStream_t stream, const LaneNormParams& params);

/// dx = inverse (weight dy - x dots inverse² / columns), inverse = 1 / sqrt(squares / columns +
/// eps), where the weight has the offset added. dx may alias dy; of.y is not used.
struct LaneNormBackwardParams {
    LaneNormParams of;
    RowSums dots;
    Matrix dy;
    Matrix dx;
};
cudaError_t lane_norm_backward(cudaStream_t stream, const LaneNormBackwardParams& params);

}  // namespace loratrain::kernels

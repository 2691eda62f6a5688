#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Rotates halves in place: for each head of `head_dim` columns and j < head_dim / 2
///   (x_j, x_{j+D/2}) <- (x_j c - x_{j+D/2} s, x_{j+D/2} c + x_j s), angle = position * inv_freq_j
/// rounded to fp32; backward: the inverse rotation.
struct RopeParams {
    Matrix x;
    std::int64_t head_dim = 0;
    const float* inv_freq = nullptr;          ///< [head_dim / 2]
    const std::int32_t* positions = nullptr;  ///< [rows]
    bool backward = false;
};
cudaError_t rope(cudaStream_t stream, const RopeParams& params);

}  // namespace loratrain::kernels

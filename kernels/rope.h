#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Rotary positions, in place (src/backend/ops/attention.h). In each head of head_dim columns, the
/// first D = rotary_dim columns are rotated in pairs, j < D / 2:
///   (x_j, x_{j+D/2}) <- l (x_j c - x_{j+D/2} s, x_{j+D/2} c + x_j s)
///   c, s = cos, sin of position * inv_freq_j, rounded to fp32;  l = length
/// interleaved: pairs (x_2j, x_{2j+1}). backward: the transpose. Heads in the first scaled_columns
/// are also multiplied by 1 + scale_beta ln(1 + floor(position / scale_period)), forward and
/// backward.
struct RopeParams {
    Matrix x;
    std::int64_t head_dim = 0;
    const float* inv_freq = nullptr;          ///< [D / 2]
    const std::int32_t* positions = nullptr;  ///< [rows]
    bool backward = false;
    std::int64_t scaled_columns = 0;
    float scale_beta = 0.0F;
    float scale_period = 1.0F;
    std::int64_t rotary_dim = 0;
    bool interleaved = false;
    float length = 1.0F;
};
cudaError_t rope(cudaStream_t stream, const RopeParams& params);

}  // namespace loratrain::kernels

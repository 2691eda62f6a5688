#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// RMSNorm and its gradient (src/backend/ops/elementwise.h).

/// y_t = x_t / sqrt(mean(x_t²) + eps) * (weight + weight_offset), in each of `groups` equal column
/// groups. If `added` has data, added_t is added (then without codes). weight: [cols / groups] of
/// x's type. y may alias x or added. `codes`: of y, as quantize_rows() makes them; null = none.
struct RmsNormParams {
    Matrix x;
    const void* weight = nullptr;
    float eps = 0.0F;
    std::int64_t groups = 1;
    Matrix y;
    Fp8Codes codes = {};
    float weight_offset = 0.0F;
    Matrix added = {};
};
cudaError_t rms_norm(cudaStream_t stream, const RmsNormParams& params);

/// dx = gradient with respect to x, or += with accumulate. Without accumulate dx may alias dy. If
/// `scaled` has data (groups = 1), its row t is multiplied by 1 / sqrt(mean(x_t²) + eps); it
/// aliases no other matrix.
struct RmsNormBackwardParams {
    Matrix x;
    const void* weight = nullptr;
    float eps = 0.0F;
    std::int64_t groups = 1;
    Matrix dy;
    Matrix dx;
    bool accumulate = false;
    Matrix scaled = {};
    float weight_offset = 0.0F;
};
cudaError_t rms_norm_backward(cudaStream_t stream, const RmsNormBackwardParams& params);

}  // namespace loratrain::kernels

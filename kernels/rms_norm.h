#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// y[t, :] = x_t / sqrt(mean(x_t²) + eps) * (weight + weight_offset) in each of `groups` equal
/// column groups, and added_t on top where that has data (without codes); weight: [cols / groups]
/// of x's type. y may alias x or added. `codes`: of y, as quantize_rows makes them; none
/// where its codes are null.
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

/// dx (+)= gradient with respect to x. dx may alias dy when accumulate is false. The rows of
/// `scaled`, where it has data and with one group, are multiplied by 1 / sqrt(mean(x_t²) + eps); it
/// aliases none of the others.
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

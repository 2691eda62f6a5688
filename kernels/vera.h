#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// VeRA's ops as src/backend/ops/vera.h has them.

/// product = diag(scale_b) b diag(scale_d); b, product: [out, rank].
struct VeraProductParams {
    const float* b = nullptr;
    const float* scale_d = nullptr;
    const float* scale_b = nullptr;
    float* product = nullptr;
    std::int64_t out = 0;
    std::int32_t rank = 0;
};
cudaError_t vera_product(cudaStream_t stream, const VeraProductParams& params);

/// grad_d and grad_b += what `gradient` [out, rank], that of the product, says of the scales; it is
/// 0 afterwards. Sums in fp64, in one order.
struct VeraGradientsParams {
    VeraProductParams of;  ///< without product
    float* gradient = nullptr;
    float* grad_d = nullptr;
    float* grad_b = nullptr;
};
cudaError_t vera_gradients(cudaStream_t stream, const VeraGradientsParams& params);

}  // namespace loratrain::kernels

#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Operators of VeRA (src/backend/ops/vera.h).

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

/// grad_d, grad_b += gradients of the scales from `gradient` [out, rank], the product's, which is
/// set to 0. Sums in fp64, in a fixed order.
struct VeraGradientsParams {
    VeraProductParams of;  ///< product is not used
    float* gradient = nullptr;
    float* grad_d = nullptr;
    float* grad_b = nullptr;
};
cudaError_t vera_gradients(cudaStream_t stream, const VeraGradientsParams& params);

}  // namespace loratrain::kernels

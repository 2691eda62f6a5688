#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Operators of DoRA (src/backend/ops/dora.h), and dropout of rows.

/// squares[j] = sum over k of (w[j, k] + scale * sum over i of b[j, i] a[i, k])². Sums over k in
/// fp64.
struct DoraNormsParams {
    Matrix w;                  ///< [N, K]
    const float* a = nullptr;  ///< [rank, K]
    const float* b = nullptr;  ///< [N, rank]
    std::int32_t rank = 0;
    float scale = 1.0F;
    float* squares = nullptr;  ///< [N]
};
cudaError_t dora_norms(cudaStream_t stream, const DoraNormsParams& params);

/// target[t, j] = (magnitude[j] / sqrt(squares[j]) - less) source[t, j], or += with accumulate.
struct DoraScaleParams {
    Matrix target;
    Matrix source;
    const float* magnitude = nullptr;  ///< [N]
    const float* squares = nullptr;    ///< [N]
    float less = 0.0F;
    bool accumulate = false;
};
cudaError_t dora_scale(cudaStream_t stream, const DoraScaleParams& params);

/// gradient[j] += sum over t of dy[t, j] v[t, j] / sqrt(squares[j]). With `magnitude`, magnitude[j]
/// divides in place of the square root; elements whose magnitude is 0 get nothing. Sums in fp64.
struct DoraGradMagnitudeParams {
    Matrix dy;
    Matrix v;
    const float* squares = nullptr;    ///< [N]
    float* gradient = nullptr;         ///< [N]
    const float* magnitude = nullptr;  ///< [N]
};
cudaError_t dora_grad_magnitude(cudaStream_t stream, const DoraGradMagnitudeParams& params);

/// y = drop(x), or += with accumulate. Elements whose 15 random bits are below `threshold` become
/// 0; the others are scaled. Threshold 0 drops nothing.
struct DropRowsParams {
    Matrix y;
    Matrix x;
    const std::int32_t* positions = nullptr;   ///< [rows]
    const std::int32_t* sample_ids = nullptr;  ///< [rows]
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    std::uint32_t threshold = 0;
    std::int32_t first_block = 0;  ///< number of the 8 columns of the linear's input where x begins
    bool accumulate = false;
};
cudaError_t drop_rows(cudaStream_t stream, const DropRowsParams& params);

}  // namespace loratrain::kernels

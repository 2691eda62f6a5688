#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Operators of DoRA (src/backend/ops/dora.h), and dropout of rows.

/// squares[j] = sum over k of (w[j, k] + scale * sum over i of b[j, i] a[i, k])². Sums over
/// k in fp64; with tensor cores, for bf16 in rows of multiples of 16 bytes, those of 8 k in fp32,
/// and b a with 16 bits.
struct DoraNormsParams {
    Matrix w;                  ///< [N, K]
    const float* a = nullptr;  ///< [rank, K]
    const float* b = nullptr;  ///< [N, rank]
    std::int32_t rank = 0;
    float scale = 1.0F;
    float* squares = nullptr;  ///< [N]
};
cudaError_t dora_norms(cudaStream_t stream, const DoraNormsParams& params);

/// target[t, j] = added[t, j] + (magnitude[j] / sqrt(squares[j]) - less) source[t, j]; added
/// without data counts as 0.
struct DoraScaleParams {
    Matrix target;
    Matrix source;
    const float* magnitude = nullptr;  ///< [N]
    const float* squares = nullptr;    ///< [N]
    float less = 0.0F;
    Matrix added;
};
cudaError_t dora_scale(cudaStream_t stream, const DoraScaleParams& params);

/// gradient[j] += f_j (sum over t of dy[t, j] v[t, j]), f_j = 1 / sqrt(squares[j]), less the
/// factors magnitude[j] / sqrt(squares[j]) that `scaled` operands have. Elements whose magnitude is
/// 0 get nothing if any has. Sums of four rows in fp32, of these in fp64.
struct DoraGradMagnitudeParams {
    Matrix dy;
    Matrix v;
    const float* squares = nullptr;    ///< [N]
    float* gradient = nullptr;         ///< [N]
    const float* magnitude = nullptr;  ///< [N]
    int scaled = 0;                    ///< 0 to 2
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

#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Elementwise operators, and operators that move rows or numbers (src/backend/ops/rows.h).

/// target = source, converting between element types; equal shapes.
cudaError_t copy(cudaStream_t stream, const Matrix& target, const Matrix& source);

/// target[t, h target_stride + j] = source[t, h source_stride + j] for h < heads, j < width; equal
/// types; source_stride may be 0.
struct CopyHeadsParams {
    Matrix target;
    Matrix source;
    std::int32_t heads = 0;
    std::int32_t width = 0;
    std::int32_t target_stride = 0;
    std::int32_t source_stride = 0;
};
cudaError_t copy_heads(cudaStream_t stream, const CopyHeadsParams& params);

/// target[t, j] = sum over h < heads of source[t, h stride + j] in fp32; equal types.
cudaError_t sum_heads(cudaStream_t stream, const Matrix& target, const Matrix& source,
                      std::int32_t heads, std::int32_t stride);

/// y[t, :] += bias; bias: [cols] of y's type.
cudaError_t add_bias(cudaStream_t stream, const Matrix& y, const void* bias);

/// y += x; equal shapes and types.
cudaError_t add(cudaStream_t stream, const Matrix& y, const Matrix& x);

/// x <- cap tanh(x / cap).
cudaError_t soft_cap(cudaStream_t stream, const Matrix& x, float cap);

/// y *= factor; factor 0 overwrites NaN too.
cudaError_t scale(cudaStream_t stream, const Matrix& y, float factor);

/// y[i, :] = scale table[ids[i], :], or zeros if ids[i] is negative, converting between element
/// types. ids: device memory.
cudaError_t gather_rows(cudaStream_t stream, const Matrix& y, const Matrix& table,
                        const std::int32_t* ids, float scale);

/// y[ids[i], :] = x[i, :]; all other rows of y are set to 0. Equal types; ids differ.
cudaError_t scatter_rows(cudaStream_t stream, const Matrix& y, const Matrix& x,
                         const std::int32_t* ids);

/// target[target_index[i]] = source[source_index[i]], or += with `add`, for i < count, in order.
/// Index lists are device memory.
cudaError_t move_doubles(cudaStream_t stream, double* target, const double* source,
                         const std::int32_t* target_index, const std::int32_t* source_index,
                         std::int64_t count, bool add);

}  // namespace loratrain::kernels

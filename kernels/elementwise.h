#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// target = source, converting between element types. Same shape.
cudaError_t copy(cudaStream_t stream, const Matrix& target, const Matrix& source);

/// y[t, :] += bias; bias: [cols] of y's type.
cudaError_t add_bias(cudaStream_t stream, const Matrix& y, const void* bias);

/// y += x, of one shape and type.
cudaError_t add(cudaStream_t stream, const Matrix& y, const Matrix& x);

/// x <- cap tanh(x / cap).
cudaError_t soft_cap(cudaStream_t stream, const Matrix& x, float cap);

/// y *= factor; factor 0 overwrites, also NaN.
cudaError_t scale(cudaStream_t stream, const Matrix& y, float factor);

}  // namespace loratrain::kernels

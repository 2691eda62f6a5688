#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// y[i, :] = scale table[ids[i], :], or zeros where ids[i] is negative, converting between element
/// types. ids: device memory.
cudaError_t gather_rows(cudaStream_t stream, const Matrix& y, const Matrix& table,
                        const std::int32_t* ids, float scale);

/// y[ids[i], :] = x[i, :], all other rows of y are set to 0. Same type; ids differ.
cudaError_t scatter_rows(cudaStream_t stream, const Matrix& y, const Matrix& x,
                         const std::int32_t* ids);

}  // namespace loratrain::kernels

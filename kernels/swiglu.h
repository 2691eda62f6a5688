#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// h = silu(gate) * up. All [T, F] of one type.
cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h);

struct SwiGluBackwardParams {
    Matrix gate, up, dh;
    Matrix dgate, dup;  ///< may alias gate and up
    Matrix h;           ///< recomputed when data is set; may alias dh
};
cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& params);

}  // namespace loratrain::kernels

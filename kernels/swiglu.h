#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// h = silu(gate) * up. All [T, F] of one type. `codes`: of h, as quantize_rows makes them; none
/// where its codes are null.
cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h,
                   const Fp8Codes& codes = {});

struct SwiGluBackwardParams {
    Matrix gate, up, dh;
    Matrix dgate, dup;  ///< may alias gate and up
    Matrix h;           ///< recomputed when data is set; may alias dh
    /// Of dgate and dup side by side, as they must lie then, times column_scales [2 F] (null: 1).
    Fp8Codes codes = {};
    const float* column_scales = nullptr;
};
cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& params);

}  // namespace loratrain::kernels

#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// What the gate goes through (base/operators.h of the program).
enum class Gate : std::uint8_t { silu, gelu_tanh };

/// h = f(gate) * up, f = `function`. All [T, F] of one type. `codes`: of h, as quantize_rows makes
/// them; none where its codes are null.
cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h,
                   const Fp8Codes& codes = {}, Gate function = Gate::silu);

struct SwiGluBackwardParams {
    Matrix gate, up, dh;
    Matrix dgate, dup;  ///< may alias gate and up
    Matrix h;           ///< recomputed when data is set; may alias dh
    /// Of dgate and dup side by side, as they must lie then, times column_scales [2 F] (null: 1).
    Fp8Codes codes = {};
    const float* column_scales = nullptr;
    Gate function = Gate::silu;
};
cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& params);

}  // namespace loratrain::kernels

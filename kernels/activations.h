#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// Activations of an MLP: SwiGLU and its like with a gate, xIELU and squares of ReLU without. All
/// matrices are [T, F] of one type. Formulas: src/backend/ops/elementwise.h.

/// Function of the gate, of clamped_swiglu of up too (src/base/operators.h, Activation).
enum class Gate : std::uint8_t { silu, gelu_tanh, sigmoid, clamped_swiglu };
constexpr float swiglu_limit = 7.0F;
constexpr float swiglu_alpha = 1.702F;

/// h = f(gate) * up, f = `function`. `codes`: of h, as quantize_rows() makes them; null = none.
cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h,
                   const Fp8Codes& codes = {}, Gate function = Gate::silu);

struct SwiGluBackwardParams {
    Matrix gate, up, dh;
    Matrix dgate, dup;  ///< may alias gate and up
    Matrix h;           ///< recomputed if it has data; may alias dh
    /// Codes of [dgate, dup] times column_scales [2 F] (null = 1); the two must lie side by side
    /// then.
    Fp8Codes codes = {};
    const float* column_scales = nullptr;
    Gate function = Gate::silu;
};
cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& params);

/// Xielu and XieluBackward. `codes`: of h or dx, as quantize_rows() makes them; null = none.
struct XieluParams {
    Matrix x;
    float positive = 0.0F;
    float negative = 0.0F;
    float linear = 0.5F;
    Matrix h;  ///< backward: recomputed if it has data; may alias dh
    Matrix dh = {};
    Matrix dx = {};  ///< may alias x
    Fp8Codes codes = {};
    const float* column_scales = nullptr;  ///< of dx
};
cudaError_t xielu(cudaStream_t stream, const XieluParams& params);
cudaError_t xielu_backward(cudaStream_t stream, const XieluParams& params);

}  // namespace loratrain::kernels

#pragma once

#include <cstdint>

#include "backend/ops/gemm.h"
#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// Norms and activations of an MLP, forward and backward.

/// y_t = x_t / sqrt(mean(x_t²) + eps) * (w + weight_offset), separately in each of `groups` equal
/// column groups (groups > 1: q/k norm of qwen3). If `added` has data, added_t is added (then
/// without codes). w: [cols / groups]. y may alias x or added.
struct RmsNorm {
    TensorView x;
    const void* weight = nullptr;  ///< compute_dtype()
    float eps = 1e-6F;
    std::int64_t groups = 1;
    TensorView y;
    RowCodes codes = {};  ///< of y
    float weight_offset = 0.0F;
    TensorView added = {};
};

/// dx = gradient of RmsNorm with respect to x, or += with accumulate; weights are frozen. Without
/// accumulate dx may alias dy. If `scaled` has data (groups = 1), its row t is multiplied by
/// 1 / sqrt(mean(x_t²) + eps): then LoraGradA with the norm's weight can read x in place of y.
/// `scaled` aliases no other view.
struct RmsNormBackward {
    TensorView x;
    const void* weight = nullptr;
    float eps = 1e-6F;
    std::int64_t groups = 1;
    TensorView dy;
    TensorView dx;
    bool accumulate = false;
    TensorView scaled = {};
    float weight_offset = 0.0F;
};

/// h = f(gate) * up, f = activation (of clamped_swiglu as there). gate, up, h: [T, F].
struct SwiGlu {
    TensorView gate;
    TensorView up;
    TensorView h;
    RowCodes codes = {};  ///< of h
    Activation activation = Activation::silu;
};

/// True if `right` has the columns behind `left` in the same rows.
inline bool are_side_by_side(const TensorView& left, const TensorView& right) {
    return left.offset(0, left.cols) == right.data && left.ld == right.ld &&
           left.rows == right.rows;
}

/// dgate, dup = gradients of SwiGlu from dh. If `h` has data, h is recomputed into it; it may alias
/// dh. dgate may alias gate, dup may alias up.
struct SwiGluBackward {
    TensorView gate;
    TensorView up;
    TensorView dh;
    TensorView dgate;
    TensorView dup;
    TensorView h;
    RowCodes codes = {};  ///< of [dgate, dup], [T, 2 F]; the two must lie side by side then
    Activation activation = Activation::silu;
};

/// Factors of Xielu.
struct XieluShape {
    float positive = 0.0F;
    float negative = 0.0F;
    float linear = 0.5F;
};

/// Squares of ReLU: max(x, 0)².
inline constexpr XieluShape relu_squared{1.0F, 0.0F, 0.0F};

/// xIELU, the activation of an MLP without a gate, with e = -1e-6:
///   h = positive x² + linear x                           if x > 0
///   h = negative (exp(min(x, e)) - 1 - x) + linear x     else
/// Source: Huang and Schlag 2024, "Deriving Activation Functions Using Integration"; Apertus.
struct Xielu {
    TensorView x;
    XieluShape shape;
    TensorView h;
    RowCodes codes = {};  ///< of h
};

/// dx = dh times the slope of Xielu; dx may alias x. If `h` has data, h is recomputed into it; it
/// may alias dh.
struct XieluBackward {
    TensorView x;
    XieluShape shape;
    TensorView dh;
    TensorView dx;
    TensorView h = {};
    RowCodes codes = {};  ///< of dx
};

}  // namespace loratrain

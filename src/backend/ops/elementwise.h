#pragma once

#include <cstdint>

#include "backend/ops/gemm.h"
#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// y[t, :] = x_t / sqrt(mean(x_t²) + eps) * (w + weight_offset), separately in each of `groups`
/// equal column groups of width cols / groups (groups > 1: the q/k norm of qwen3), and added_t on
/// top where that has data (without codes). w: [cols / groups]. y may alias x or added.
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

/// dx (+)= gradient of RmsNorm with respect to x; no weight gradient (frozen). dx may alias dy when
/// accumulate is false. The rows of scaled, where it has data and with one group, are multiplied by
/// those of x's 1 / sqrt(mean(x_t²) + eps): what LoraGradA with the norm's weight needs to have x
/// for y. It aliases none.
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

/// h = f(gate) * up, f = activation. All [T, F].
struct SwiGlu {
    TensorView gate;
    TensorView up;
    TensorView h;
    RowCodes codes = {};  ///< of h
    Activation activation = Activation::silu;
};

/// `right` are the columns behind `left` in the same rows.
inline bool are_side_by_side(const TensorView& left, const TensorView& right) {
    return left.offset(0, left.cols) == right.data && left.ld == right.ld &&
           left.rows == right.rows;
}

/// dgate, dup from dh; h is recomputed into `h` when h.data is set (it may alias dh). dgate may
/// alias gate, dup may alias up.
struct SwiGluBackward {
    TensorView gate;
    TensorView up;
    TensorView dh;
    TensorView dgate;
    TensorView dup;
    TensorView h;
    RowCodes codes = {};  ///< of dgate and dup, which lie side by side then: [T, 2 F]
    Activation activation = Activation::silu;
};

/// Of an MLP without a gate (Huang and Schlag 2024, "Deriving Activation Functions Using
/// Integration"; Apertus), with e = -1e-6:
///   h = positive x² + x / 2 where x > 0, else negative (exp(min(x, e)) - 1 - x) + x / 2
struct Xielu {
    TensorView x;
    float positive = 0.0F;
    float negative = 0.0F;
    TensorView h;
    RowCodes codes = {};  ///< of h
};

/// dx = dh times the slope; dx may alias x. h is made again where it has data, and may alias dh.
struct XieluBackward {
    TensorView x;
    float positive = 0.0F;
    float negative = 0.0F;
    TensorView dh;
    TensorView dx;
    TensorView h = {};
    RowCodes codes = {};  ///< of dx
};

}  // namespace loratrain

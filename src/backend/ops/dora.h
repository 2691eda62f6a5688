#pragma once

#include "backend/ops/lora.h"
#include "base/tensor.h"

namespace loratrain {

/// Operators of DoRA (Liu et al. 2024): norms of W + scale B A, scaling by magnitudes.

/// squares[j] = sum over k of (w[j, k] + scale * (B A)[j, k])². w: [N, K]; squares: [N].
struct DoraNorms {
    TensorView w;
    LoraSlot slot;
    float* squares = nullptr;
};

/// target[t, j] = added[t, j] + f_j source[t, j]; f_j = magnitude[j] / sqrt(squares[j]), less 1
/// with less_one. Views of one shape [n, N], which may be the same; added may have no data, as 0.
struct DoraScale {
    TensorView target;
    TensorView source;
    const float* magnitude = nullptr;  ///< [N]
    const float* squares = nullptr;    ///< [N]
    bool less_one = false;
    TensorView added = {};
};

/// gradient[j] += sum over t of dy[t, j] v[t, j] / sqrt(squares[j]). dy, v: [n, N], of which
/// `scaled` (0, 1 or 2) have been scaled by DoraScale: their factors are divided out. If any has,
/// an element whose magnitude is 0 gets no gradient.
struct DoraGradMagnitude {
    TensorView dy;
    TensorView v;
    const float* squares = nullptr;
    float* gradient = nullptr;
    const float* magnitude = nullptr;
    int scaled = 0;
};

/// Throws Error unless the views of an operator agree in shape.
void check_shapes(const DoraScale& op);
void check_shapes(const DoraGradMagnitude& op);

}  // namespace loratrain

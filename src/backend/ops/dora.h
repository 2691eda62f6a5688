#pragma once

#include "backend/ops/lora.h"
#include "base/tensor.h"

namespace loratrain {

/// squares[j] = sum over k of (w[j, k] + scale * (B A)[j, k])². w: [N, K]; squares: [N].
struct DoraNorms {
    TensorView w;
    LoraSlot slot;
    float* squares = nullptr;
};

/// target = (or += with accumulate) (magnitude / sqrt(squares) - less_one) ∘ source, column by
/// column. Views of one shape [n, N]; without accumulate they may be the same.
struct DoraScale {
    TensorView target;
    TensorView source;
    const float* magnitude = nullptr;  ///< [N]
    const float* squares = nullptr;    ///< [N]
    bool less_one = false;
    bool accumulate = false;
};

/// gradient[j] += sum over t of dy[t, j] v[t, j] / sqrt(squares[j]). dy, v: [n, N]. With magnitudes
/// v is what DoraScale has made of it, and they divide in place of the norms; one that is 0 gets no
/// gradient then.
struct DoraGradMagnitude {
    TensorView dy;
    TensorView v;
    const float* squares = nullptr;
    float* gradient = nullptr;
    const float* magnitude = nullptr;
};

/// The views of these ops must agree in shape.
void check_shapes(const DoraScale& op);
void check_shapes(const DoraGradMagnitude& op);

}  // namespace loratrain

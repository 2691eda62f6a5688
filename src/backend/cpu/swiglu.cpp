#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// What the gate's function is multiplied by, and what `d` is for the gradient of up.
struct PlainUp {
    static float up(float u) { return u; }
    static float up_gradient(float /*u*/, float d) { return d; }
};

struct Silu : PlainUp {
    static float value(float x) { return x * sigmoid_inline(x); }
    /// f(x), and what f'(x) is multiplied by with `factor`.
    static float gradient(float x, float factor, float& value) {
        const float s = sigmoid_inline(x);
        value = x * s;
        return factor * (s + value * (1.0F - s));
    }
};

/// x / 2 (1 + tanh u) = x sigmoid(2 u).
struct GeluTanh : PlainUp {
    static constexpr float twice_root = 1.59576912160573F;  // 2 sqrt(2 / pi)
    static constexpr float cubic = 0.044715F;
    static float value(float x) { return x * sigmoid_inline(twice_root * (x + cubic * x * x * x)); }
    static float gradient(float x, float factor, float& value) {
        const float s = sigmoid_inline(twice_root * (x + cubic * x * x * x));
        value = x * s;
        return factor * (s + value * (1.0F - s) * twice_root * (1.0F + 3.0F * cubic * x * x));
    }
};

struct Sigmoid : PlainUp {
    static float value(float x) { return sigmoid_inline(x); }
    static float gradient(float x, float factor, float& value) {
        value = sigmoid_inline(x);
        return factor * value * (1.0F - value);
    }
};

/// A clamp's slope is 1 at its ends, as in torch.
struct ClampedSwiglu {
    static float up(float u) {
        const float low = u < -swiglu_limit ? -swiglu_limit : u;
        return (low > swiglu_limit ? swiglu_limit : low) + 1.0F;
    }
    static float up_gradient(float u, float d) {
        return u < -swiglu_limit || u > swiglu_limit ? 0.0F : d;
    }
    static float value(float x) {
        const float m = x > swiglu_limit ? swiglu_limit : x;
        return m * sigmoid_inline(swiglu_alpha * m);
    }
    static float gradient(float x, float factor, float& value) {
        const float m = x > swiglu_limit ? swiglu_limit : x;
        const float s = sigmoid_inline(swiglu_alpha * m);
        value = m * s;
        return x > swiglu_limit ? 0.0F : factor * (s + value * (1.0F - s) * swiglu_alpha);
    }
};

/// body(Silu{}) or as the activation is.
template <class Body>
void with_activation(Activation activation, const Body& body) {
    if (activation == Activation::silu) return body(Silu{});
    if (activation == Activation::sigmoid) return body(Sigmoid{});
    if (activation == Activation::clamped_swiglu) return body(ClampedSwiglu{});
    body(GeluTanh{});
}

/// Writes h only where it is kept.
template <class Function, bool keep_h>
LORATRAIN_VECTOR_CODE void backward_row(const float* gate, const float* up, const float* dh,
                                        std::int64_t count, float* dgate, float* dup,
                                        [[maybe_unused]] float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
        const float g = gate[j];
        const float u = up[j];
        const float d = dh[j];
        float value = 0.0F;
        const float by = Function::up(u);
        dgate[j] = Function::gradient(g, d * by, value);
        dup[j] = Function::up_gradient(u, d * value);
        if constexpr (keep_h) h[j] = value * by;
    }
}

template <class Function>
LORATRAIN_VECTOR_CODE void forward_row(const float* gate, const float* up, std::int64_t count,
                                       float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) h[j] = Function::value(gate[j]) * Function::up(up[j]);
}

float* row_of(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

template <class Function>
void backward_rows(const SwiGluBackward& op, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
        const float* gate = row_of(op.gate, row);
        const float* up = row_of(op.up, row);
        const float* dh = row_of(op.dh, row);
        float* dgate = row_of(op.dgate, row);
        float* dup = row_of(op.dup, row);
        if (op.h.data != nullptr) {
            backward_row<Function, true>(gate, up, dh, op.gate.cols, dgate, dup, row_of(op.h, row));
        } else {
            backward_row<Function, false>(gate, up, dh, op.gate.cols, dgate, dup, nullptr);
        }
    }
}

}  // namespace

void CpuBackend::swiglu(const SwiGlu& op) {
    require_f32({&op.gate, &op.up, &op.h});
    with_activation(op.activation, [&](auto function) {
        using Function = decltype(function);
        parallel_rows(threads_, op.gate.rows, op.gate.cols,
                      [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t row = begin; row < end; ++row) {
                              forward_row<Function>(row_of(op.gate, row), row_of(op.up, row),
                                                    op.gate.cols, row_of(op.h, row));
                          }
                      });
    });
    make_codes(op.codes, op.h);
}

void CpuBackend::swiglu_backward(const SwiGluBackward& op) {
    require_f32({&op.gate, &op.up, &op.dh, &op.dgate, &op.dup});
    LORATRAIN_CHECK(!op.codes.are_wanted() || are_side_by_side(op.dgate, op.dup),
                    "codes of gradients that do not lie side by side");
    with_activation(op.activation, [&](auto function) {
        parallel_rows(threads_, op.gate.rows, op.gate.cols,
                      [&](std::int64_t begin, std::int64_t end) {
                          backward_rows<decltype(function)>(op, begin, end);
                      });
    });
    TensorView both = op.dgate;
    both.cols += op.dup.cols;
    make_codes(op.codes, both);
}

}  // namespace loratrain

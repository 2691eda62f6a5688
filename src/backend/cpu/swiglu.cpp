#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

LORATRAIN_VECTOR_CODE
void forward_row(const float* gate, const float* up, std::int64_t count, float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) h[j] = gate[j] * sigmoid_inline(gate[j]) * up[j];
}

/// Writes h only where it is kept.
template <bool keep_h>
LORATRAIN_VECTOR_CODE void backward_row(const float* gate, const float* up, const float* dh,
                                        std::int64_t count, float* dgate, float* dup,
                                        [[maybe_unused]] float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
        const float g = gate[j];
        const float u = up[j];
        const float d = dh[j];
        const float s = sigmoid_inline(g);
        const float silu = g * s;
        dgate[j] = d * u * (s + silu * (1.0F - s));
        dup[j] = d * silu;
        if constexpr (keep_h) h[j] = silu * u;
    }
}

float* row_of(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

}  // namespace

void CpuBackend::swiglu(const SwiGlu& op) {
    require_f32({&op.gate, &op.up, &op.h});
    parallel_rows(threads_, op.gate.rows, op.gate.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            forward_row(row_of(op.gate, row), row_of(op.up, row), op.gate.cols, row_of(op.h, row));
        }
    });
    make_codes(op.codes, op.h);
}

void CpuBackend::swiglu_backward(const SwiGluBackward& op) {
    require_f32({&op.gate, &op.up, &op.dh, &op.dgate, &op.dup});
    LORATRAIN_CHECK(!op.codes.are_wanted() || are_side_by_side(op.dgate, op.dup),
                    "codes of gradients that do not lie side by side");
    const bool with_h = op.h.data != nullptr;
    parallel_rows(threads_, op.gate.rows, op.gate.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* gate = row_of(op.gate, row);
            const float* up = row_of(op.up, row);
            const float* dh = row_of(op.dh, row);
            float* dgate = row_of(op.dgate, row);
            float* dup = row_of(op.dup, row);
            if (with_h) {
                backward_row<true>(gate, up, dh, op.gate.cols, dgate, dup, row_of(op.h, row));
            } else {
                backward_row<false>(gate, up, dh, op.gate.cols, dgate, dup, nullptr);
            }
        }
    });
    TensorView both = op.dgate;
    both.cols += op.dup.cols;
    make_codes(op.codes, both);
}

}  // namespace loratrain

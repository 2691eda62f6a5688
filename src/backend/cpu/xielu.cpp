#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr float largest_negative = -1e-6F;

/// e^x - 1 - x of x <= 0: by its series near 0, where the difference would lose its digits.
inline float bend(float x) {
    const float far = exp_inline(x) - 1.0F - x;
    float p = 1.0F / 39916800.0F;
    p = std::fma(p, x, 1.0F / 3628800.0F);
    p = std::fma(p, x, 1.0F / 362880.0F);
    p = std::fma(p, x, 1.0F / 40320.0F);
    p = std::fma(p, x, 1.0F / 5040.0F);
    p = std::fma(p, x, 1.0F / 720.0F);
    p = std::fma(p, x, 1.0F / 120.0F);
    p = std::fma(p, x, 1.0F / 24.0F);
    p = std::fma(p, x, 1.0F / 6.0F);
    p = std::fma(p, x, 0.5F);
    return x <= -1.0F ? far : p * x * x;
}

inline float value_of(const XieluShape& of, float x) {
    const float bounded = x < largest_negative ? x : largest_negative;
    const float above = std::fma(of.positive * x, x, of.linear * x);
    const float below = std::fma(of.negative, bend(bounded) + (bounded - x), of.linear * x);
    return x > 0.0F ? above : below;
}

inline float slope_of(const XieluShape& of, float x) {
    const float above = std::fma(2.0F * of.positive, x, of.linear);
    const float e = x < largest_negative ? bend(x) + x : -1.0F;
    return x > 0.0F ? above : std::fma(of.negative, e, of.linear);
}

LORATRAIN_VECTOR_CODE
void xielu_row(const float* x, std::int64_t count, XieluShape of, float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) h[j] = value_of(of, x[j]);
}

/// dx may be x, h may be dh.
template <bool keep_h>
LORATRAIN_VECTOR_CODE void xielu_backward_row(const float* x, const float* dh, std::int64_t count,
                                              XieluShape of, float* dx, [[maybe_unused]] float* h) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
        const float at = x[j];
        const float gradient = dh[j];
        dx[j] = gradient * slope_of(of, at);
        if constexpr (keep_h) h[j] = value_of(of, at);
    }
}

float* row_of_xielu(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

}  // namespace

void CpuBackend::xielu(const Xielu& op) {
    require_f32({&op.x, &op.h});
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            xielu_row(row_of_xielu(op.x, row), op.x.cols, op.shape, row_of_xielu(op.h, row));
        }
    });
    make_codes(op.codes, op.h);
}

void CpuBackend::xielu_backward(const XieluBackward& op) {
    require_f32({&op.x, &op.dh, &op.dx});
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* x = row_of_xielu(op.x, row);
            const float* dh = row_of_xielu(op.dh, row);
            float* dx = row_of_xielu(op.dx, row);
            if (op.h.data != nullptr) {
                xielu_backward_row<true>(x, dh, op.x.cols, op.shape, dx, row_of_xielu(op.h, row));
            } else {
                xielu_backward_row<false>(x, dh, op.x.cols, op.shape, dx, nullptr);
            }
        }
    });
    make_codes(op.codes, op.dx);
}

}  // namespace loratrain

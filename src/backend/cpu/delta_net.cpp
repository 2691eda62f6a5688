#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t conv_columns = 512;  ///< of one thread at a time

float* row_of(const TensorView& x, std::int64_t row) {
    return x.f32() + row * x.ld;
}

float softplus(float x) {
    return x > 20.0F ? x : std::log1p(std::exp(x));
}

/// y += w[c, tap] x over `count` columns; w is [columns, width].
LORATRAIN_VECTOR_CODE
void add_tap(const float* w, std::int64_t width, std::int64_t tap, const float* x,
             std::int64_t count, float* y) {
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) y[c] += w[c * width + tap] * x[c];
}

LORATRAIN_VECTOR_CODE
void silu_in_place(float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) x[c] *= sigmoid_inline(x[c]);
}

/// p -> dy silu'(p).
LORATRAIN_VECTOR_CODE
void silu_gradient(const float* dy, std::int64_t count, float* p) {
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) {
        const float s = sigmoid_inline(p[c]);
        p[c] = dy[c] * s * (1.0F + p[c] * (1.0F - s));
    }
}

/// Some columns of a convolution.
struct ConvColumns {
    const CausalConv& op;
    std::int64_t first = 0;
    std::int64_t count = 0;

    const float* weights() const { return static_cast<const float*>(op.weight) + first * op.width; }
    /// Rows that a row reads, itself included.
    std::int64_t taps_of(std::int64_t row) const {
        return std::min<std::int64_t>(op.width, op.rows.positions[row] + 1);
    }
    /// p of a row.
    void make(std::int64_t row, float* p) const {
        std::fill_n(p, count, 0.0F);
        for (std::int64_t back = taps_of(row) - 1; back >= 0; --back) {
            add_tap(weights(), op.width, op.width - 1 - back, row_of(op.x, row - back) + first,
                    count, p);
        }
    }
};

/// The rows of one sample, and those kept before its first.
struct KeptSample {
    const CachedConv& op;
    std::int64_t first = 0;  ///< row of `kept`
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t kept_rows() const { return op.of.width - 1; }
    /// x of `row`, which may be before `begin`.
    float* input(std::int64_t row) const {
        return row >= begin ? row_of(op.of.x, row)
                            : row_of(op.kept, first + kept_rows() + row - begin);
    }
    void convolve(std::int64_t row) const {
        const CausalConv& of = op.of;
        const auto* weight = static_cast<const float*>(of.weight);
        float* y = row_of(of.y, row);
        std::fill_n(y, of.x.cols, 0.0F);
        for (std::int64_t back = ConvColumns{of}.taps_of(row) - 1; back >= 0; --back) {
            add_tap(weight, of.width, of.width - 1 - back, input(row - back), of.x.cols, y);
        }
        silu_in_place(y, of.x.cols);
    }
    /// Ascending, so that a kept row is read before it is written.
    void keep() const {
        for (std::int64_t i = 0; i < kept_rows(); ++i) {
            const float* from = input(end - kept_rows() + i);
            std::copy_n(from, op.kept.cols, row_of(op.kept, first + i));
        }
    }
};

void conv_backward(const CausalConvBackward& op, const ConvColumns& columns, std::int64_t begin,
                   std::int64_t end, float* p) {
    const std::int64_t width = op.forward.width;
    for (std::int64_t row = begin; row < end; ++row) {
        columns.make(row, p);
        silu_gradient(row_of(op.dy, row) + columns.first, columns.count, p);
        std::fill_n(row_of(op.dx, row) + columns.first, columns.count, 0.0F);
        for (std::int64_t back = 0; back < columns.taps_of(row); ++back) {
            add_tap(columns.weights(), width, width - 1 - back, p, columns.count,
                    row_of(op.dx, row - back) + columns.first);
        }
    }
}

/// The norm of one head of one row.
struct NormedHead {
    const float* o;
    const float* z;
    const float* weight;
    std::int64_t width;
    float inverse;  ///< 1 / sqrt(mean(o²) + eps)
};

LORATRAIN_VECTOR_CODE
void gate_head(const NormedHead& head, float* y) {
    const float inverse = head.inverse;
    const float* o = head.o;
    const float* z = head.z;
    const float* weight = head.weight;
#pragma omp simd
    for (std::int64_t j = 0; j < head.width; ++j) {
        y[j] = o[j] * inverse * weight[j] * z[j] * sigmoid_inline(z[j]);
    }
}

/// d_o = inverse (c - o inverse² mean(o c)), c = dy w silu(z). d_o may be dy or o, and d_z z.
LORATRAIN_VECTOR_CODE
void gate_head_backward(const NormedHead& head, const float* dy, float* d_o, float* d_z) {
    const float inverse = head.inverse;
    const float* o = head.o;
    const float* z = head.z;
    const float* weight = head.weight;
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < head.width; ++j) {
        sum += o[j] * (dy[j] * weight[j] * (z[j] * sigmoid_inline(z[j])));
    }
    const float along = sum * inverse * inverse / static_cast<float>(head.width);
#pragma omp simd
    for (std::int64_t j = 0; j < head.width; ++j) {
        const float s = sigmoid_inline(z[j]);
        const float silu = z[j] * s;
        const float weighted = dy[j] * weight[j];
        d_z[j] = weighted * o[j] * inverse * (s + silu * (1.0F - s));
        d_o[j] = inverse * (weighted * silu - o[j] * along);
    }
}

/// body(row, first column, head) for every head of every row.
template <class Body>
void for_heads(int threads, const GatedNorm& op, const Body& body) {
    const std::int64_t width = op.o.cols / op.heads;
    const auto* weight = static_cast<const float*>(op.weight);
    parallel_rows(threads, op.o.rows, op.o.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t first = 0; first < op.o.cols; first += width) {
                const float* o = row_of(op.o, row) + first;
                const float mean = dot(o, o, width) / static_cast<float>(width);
                body(row, first,
                     NormedHead{o, row_of(op.z, row) + first, weight, width,
                                1.0F / std::sqrt(mean + op.eps)});
            }
        }
    });
}

}  // namespace

void CpuBackend::causal_conv(const CausalConv& op) {
    require_f32({&op.x, &op.y});
    check_shapes(op);
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            float* y = row_of(op.y, row);
            ConvColumns{op, 0, op.x.cols}.make(row, y);
            silu_in_place(y, op.x.cols);
        }
    });
}

void CpuBackend::cached_conv(const CachedConv& op) {
    require_f32({&op.of.x, &op.of.y, &op.kept});
    check_shapes(op);
    parallel_for(threads_, op.of.rows.samples, [&](std::int64_t i) {
        const std::int32_t* offsets = op.of.rows.host_offsets + i;
        const KeptSample sample{op, i * (op.of.width - 1), offsets[0], offsets[1]};
        for (std::int64_t row = sample.begin; row < sample.end; ++row) sample.convolve(row);
        sample.keep();
    });
}

void CpuBackend::causal_conv_backward(const CausalConvBackward& op) {
    require_f32({&op.forward.x, &op.dy, &op.dx});
    check_shapes(op);
    const CausalConv& of = op.forward;
    const std::int64_t blocks = (of.x.cols + conv_columns - 1) / conv_columns;
    const ThreadScratch scratch = reserve_scratch(conv_columns);
    parallel_for(threads_, of.rows.samples * blocks, [&](std::int64_t i) {
        const std::int64_t first = i % blocks * conv_columns;
        const std::int32_t* sample = of.rows.host_offsets + i / blocks;
        conv_backward(op, {of, first, std::min(conv_columns, of.x.cols - first)}, sample[0],
                      sample[1], scratch.local());
    });
}

void CpuBackend::delta_gates(const DeltaGates& op) {
    require_f32({&op.a, &op.b, &op.g, &op.beta});
    check_shapes(op);
    for (std::int64_t row = 0; row < op.a.rows; ++row) {
        for (std::int64_t h = 0; h < op.a.cols; ++h) {
            row_of(op.g, row)[h] =
                -std::exp(op.a_log[h]) * softplus(row_of(op.a, row)[h] + op.dt_bias[h]);
            row_of(op.beta, row)[h] = sigmoid_inline(row_of(op.b, row)[h]);
        }
    }
}

void CpuBackend::delta_gates_backward(const DeltaGatesBackward& op) {
    const DeltaGates& of = op.forward;
    require_f32({&of.a, &of.b, &op.d_g, &op.d_beta, &op.da, &op.db});
    check_shapes(op);
    for (std::int64_t row = 0; row < of.a.rows; ++row) {
        for (std::int64_t h = 0; h < of.a.cols; ++h) {
            const float slope = sigmoid_inline(row_of(of.a, row)[h] + of.dt_bias[h]);
            const float beta = sigmoid_inline(row_of(of.b, row)[h]);
            row_of(op.da, row)[h] = -std::exp(of.a_log[h]) * slope * row_of(op.d_g, row)[h];
            row_of(op.db, row)[h] = beta * (1.0F - beta) * row_of(op.d_beta, row)[h];
        }
    }
}

void CpuBackend::gated_norm(const GatedNorm& op) {
    require_f32({&op.o, &op.z, &op.y});
    check_shapes(op);
    for_heads(threads_, op, [&](std::int64_t row, std::int64_t first, const NormedHead& head) {
        gate_head(head, row_of(op.y, row) + first);
    });
}

void CpuBackend::gated_norm_backward(const GatedNormBackward& op) {
    require_f32({&op.forward.o, &op.forward.z, &op.dy, &op.d_o, &op.d_z});
    check_shapes(op);
    for_heads(threads_, op.forward,
              [&](std::int64_t row, std::int64_t first, const NormedHead& head) {
                  if (op.forward.y.data != nullptr) {
                      gate_head(head, row_of(op.forward.y, row) + first);
                  }
                  gate_head_backward(head, row_of(op.dy, row) + first, row_of(op.d_o, row) + first,
                                     row_of(op.d_z, row) + first);
              });
}

}  // namespace loratrain

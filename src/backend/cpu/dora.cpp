#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dropout_mask.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t norm_rows = 32;  ///< of W at a time
constexpr std::int64_t norm_cols = 512;
constexpr std::int64_t columns_at_once = 256;

/// Of a row of W alone.
float squares_of(const TensorView& w, std::int64_t row) {
    const float* values = w.f32() + row * w.ld;
    const double sum = std::accumulate(values, values + w.cols, 0.0,
                                       [](double before, double v) { return before + v * v; });
    return static_cast<float>(sum);
}

/// squares of rows [first, first + count) of W.
void add_squares(const DoraNorms& op, std::int64_t first, std::int64_t count, float* scratch) {
    std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
    const LoraSlot& slot = op.slot;
    for (std::int64_t begin = 0; begin < op.w.cols; begin += norm_cols) {
        const std::int64_t cols = std::min(norm_cols, op.w.cols - begin);
        for (std::int64_t row = 0; row < count; ++row) {
            std::copy_n(op.w.f32() + (first + row) * op.w.ld + begin, cols,
                        scratch + row * norm_cols);
        }
        sgemm({count, cols, slot.rank}, slot.scale, {slot.b + first * slot.rank, slot.rank, false},
              {slot.a + begin, op.w.cols, false}, 1.0F, scratch, norm_cols);
        for (std::int64_t row = 0; row < count; ++row) {
            for (std::int64_t i = 0; i < cols; ++i) {
                const double value = scratch[row * norm_cols + i];
                sums[static_cast<std::size_t>(row)] += value * value;
            }
        }
    }
    for (std::int64_t row = 0; row < count; ++row) {
        op.squares[first + row] = static_cast<float>(sums[static_cast<std::size_t>(row)]);
    }
}

LORATRAIN_VECTOR_CODE
void scale_row(const DoraScale& op, std::int64_t row) {
    const float* source = op.source.f32() + row * op.source.ld;
    const float* added = op.added.data == nullptr ? nullptr : op.added.f32() + row * op.added.ld;
    float* target = op.target.f32() + row * op.target.ld;
    for (std::int64_t j = 0; j < op.target.cols; ++j) {
        const float gain = op.magnitude[j] / std::sqrt(op.squares[j]) - (op.less_one ? 1.0F : 0.0F);
        target[j] = (added == nullptr ? 0.0F : added[j]) + gain * source[j];
    }
}

/// 1 / n where neither operand has been scaled, n = sqrt(squares); 1 / m for one, n / m² for both.
double factor_of(const DoraGradMagnitude& op, std::int64_t col) {
    const double norm = std::sqrt(static_cast<double>(op.squares[col]));
    if (op.scaled == 0) return 1.0 / norm;
    const double magnitude = op.magnitude[col];
    if (magnitude == 0.0) return 0.0;
    return op.scaled == 1 ? 1.0 / magnitude : norm / (magnitude * magnitude);
}

LORATRAIN_VECTOR_CODE
void add_products(const float* x, const float* y, std::int64_t count, double* sums) {
    for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(x[j]) * y[j];
}

}  // namespace

void CpuBackend::dora_norms(const DoraNorms& op) {
    require_f32({&op.w});
    const ThreadScratch scratch = reserve_scratch(op.slot.rank > 0 ? norm_rows * norm_cols : 0);
    parallel_for(threads_, (op.w.rows + norm_rows - 1) / norm_rows, [&](std::int64_t i) {
        const std::int64_t first = i * norm_rows;
        const std::int64_t count = std::min(norm_rows, op.w.rows - first);
        if (op.slot.rank > 0) return add_squares(op, first, count, scratch.local());
        for (std::int64_t row = first; row < first + count; ++row)
            op.squares[row] = squares_of(op.w, row);
    });
}

void CpuBackend::dora_scale(const DoraScale& op) {
    require_f32({&op.target, &op.source});
    if (op.added.data != nullptr) require_f32({&op.added});
    check_shapes(op);
    parallel_rows(threads_, op.target.rows, op.target.cols,
                  [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t row = begin; row < end; ++row) scale_row(op, row);
                  });
}

void CpuBackend::dora_grad_magnitude(const DoraGradMagnitude& op) {
    require_f32({&op.dy, &op.v});
    check_shapes(op);
    const std::int64_t blocks = (op.dy.cols + columns_at_once - 1) / columns_at_once;
    parallel_for(threads_, blocks, [&](std::int64_t i) {
        const std::int64_t first = i * columns_at_once;
        const std::int64_t end = std::min(op.dy.cols, first + columns_at_once);
        std::vector<double> sums(columns_at_once, 0.0);
        for (std::int64_t row = 0; row < op.dy.rows; ++row) {
            add_products(op.dy.f32() + row * op.dy.ld + first, op.v.f32() + row * op.v.ld + first,
                         end - first, sums.data());
        }
        for (std::int64_t j = first; j < end; ++j) {
            const double sum = sums[static_cast<std::size_t>(j - first)];
            op.gradient[j] += static_cast<float>(sum * factor_of(op, j));
        }
    });
}

void CpuBackend::drop_rows(const DropRows& op) {
    require_f32({&op.y, &op.x});
    check_shapes(op);
    const LoraSlot& slot = op.slot;
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const DropoutRow bits{slot.dropout_key, op.step,
                                  static_cast<std::uint32_t>(op.sample_ids[row]),
                                  static_cast<std::uint32_t>(op.positions[row]), slot.dropout};
            const float* x = op.x.f32() + row * op.x.ld;
            float* y = op.y.f32() + row * op.y.ld;
            if (op.accumulate) {
                add_dropped_row(bits, slot.dropout_column, op.x.cols, x, y);
            } else {
                drop_row(bits, slot.dropout_column, op.x.cols, x, y);
            }
        }
    });
}

}  // namespace loratrain

#include "backend/ops/lane_norm.h"

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

template <class Element>
Element* row_of(const TensorView& x, std::int64_t row) {
    return static_cast<Element*>(x.data) + row * x.ld;
}

struct LaneWeight {
    const float* values;
    float offset;
    float at(std::int64_t j) const { return values[j] + offset; }
};

LaneWeight weight_of(const LaneNorm& op) {
    return {static_cast<const float*>(op.weight), op.weight_offset};
}

LORATRAIN_VECTOR_CODE
float weighted_dot_of(const float* a, LaneWeight weight, const float* b, std::int64_t count) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) sum += a[j] * weight.at(j) * b[j];
    return sum;
}

float inverse_of(const LaneNorm& op, std::int64_t row) {
    const float squares = *row_of<const float>(op.squares, row);
    return 1.0F / std::sqrt(squares / static_cast<float>(op.columns) + op.eps);
}

LORATRAIN_VECTOR_CODE
void scale_by(const float* x, LaneWeight weight, float inverse, std::int64_t count, float* y) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) y[j] = x[j] * inverse * weight.at(j);
}

LORATRAIN_VECTOR_CODE
void gradient_of(const float* x, LaneWeight weight, const float* dy, float inverse, float along,
                 std::int64_t count, float* dx) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
        dx[j] = inverse * (weight.at(j) * dy[j] - x[j] * along);
    }
}

/// body(row) for every row of x.
template <class Body>
void for_rows(int threads, const TensorView& x, const Body& body) {
    parallel_rows(threads, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) body(row);
    });
}

}  // namespace

void CpuBackend::row_dots(const RowDots& op) {
    require_f32({&op.a, &op.b, &op.sums});
    const LaneWeight weight{static_cast<const float*>(op.weight), op.weight_offset};
    for_rows(threads_, op.a, [&](std::int64_t row) {
        const float* a = row_of<const float>(op.a, row);
        const float* b = row_of<const float>(op.b, row);
        *row_of<float>(op.sums, row) = weight.values == nullptr
                                           ? dot(a, b, op.a.cols)
                                           : weighted_dot_of(a, weight, b, op.a.cols);
    });
}

void CpuBackend::lane_norm(const LaneNorm& op) {
    require_f32({&op.x, &op.squares, &op.y});
    for_rows(threads_, op.x, [&](std::int64_t row) {
        scale_by(row_of<const float>(op.x, row), weight_of(op), inverse_of(op, row), op.x.cols,
                 row_of<float>(op.y, row));
    });
}

void CpuBackend::lane_norm_backward(const LaneNormBackward& op) {
    const LaneNorm& of = op.of;
    require_f32({&of.x, &of.squares, &op.dots, &op.dy, &op.dx});
    for_rows(threads_, of.x, [&](std::int64_t row) {
        const float inverse = inverse_of(of, row);
        const float along =
            *row_of<const float>(op.dots, row) * inverse * inverse / static_cast<float>(of.columns);
        gradient_of(row_of<const float>(of.x, row), weight_of(of), row_of<const float>(op.dy, row),
                    inverse, along, of.x.cols, row_of<float>(op.dx, row));
    });
}

}  // namespace loratrain

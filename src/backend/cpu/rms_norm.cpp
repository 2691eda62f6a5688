#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// body(row, first column, columns) for every group of columns of every row.
template <class Body>
void for_groups(int threads, const TensorView& x, std::int64_t groups, const Body& body) {
    LORATRAIN_CHECK(groups >= 1 && x.cols % groups == 0, "rms_norm of ", x.cols, " columns in ",
                    groups, " groups");
    const std::int64_t width = x.cols / groups;
    parallel_rows(threads, x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t col = 0; col < x.cols; col += width) body(row, col, width);
        }
    });
}

float* at(const TensorView& x, std::int64_t row, std::int64_t col) {
    return x.f32() + row * x.ld + col;
}

LORATRAIN_VECTOR_CODE
float inverse_rms(const float* x, std::int64_t width, float eps) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < width; ++j) sum += x[j] * x[j];
    return 1.0F / std::sqrt(sum / static_cast<float>(width) + eps);
}

struct NormWeight {
    const float* values;
    float offset;
    float at(std::int64_t j) const { return values[j] + offset; }
};

/// added: null where there is none.
LORATRAIN_VECTOR_CODE
void normalize(const float* x, const NormWeight& weight, std::int64_t width, float eps,
               const float* added, float* y) {
    const float inverse = inverse_rms(x, width, eps);
    if (added != nullptr) {
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j) y[j] = added[j] + x[j] * inverse * weight.at(j);
        return;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[j] = x[j] * inverse * weight.at(j);
}

LORATRAIN_VECTOR_CODE
void scale_row(float factor, std::int64_t cols, float* row) {
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) row[j] *= factor;
}

/// weight: by value, for GCC 12 makes no vectors of the sum where it is a reference.
LORATRAIN_VECTOR_CODE
void normalize_backward(const float* x, NormWeight weight, const float* dy, std::int64_t width,
                        float eps, bool accumulate, float* dx) {
    const float inverse = inverse_rms(x, width, eps);
    float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t j = 0; j < width; ++j) dot += x[j] * weight.at(j) * dy[j];
    const float along = dot * inverse * inverse / static_cast<float>(width);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) {
        const float gradient = inverse * (weight.at(j) * dy[j] - x[j] * along);
        dx[j] = accumulate ? dx[j] + gradient : gradient;
    }
}

}  // namespace

void CpuBackend::rms_norm(const RmsNorm& op) {
    require_f32({&op.x, &op.y});
    LORATRAIN_CHECK(op.added.data == nullptr || !op.codes.are_wanted(),
                    "codes of a norm and what it is added to");
    if (op.added.data != nullptr) require_f32({&op.added});
    const NormWeight weight{static_cast<const float*>(op.weight), op.weight_offset};
    for_groups(threads_, op.x, op.groups,
               [&](std::int64_t row, std::int64_t col, std::int64_t width) {
                   const float* added = op.added.data ? at(op.added, row, col) : nullptr;
                   normalize(at(op.x, row, col), weight, width, op.eps, added, at(op.y, row, col));
               });
    make_codes(op.codes, op.y);
}

void CpuBackend::rms_norm_backward(const RmsNormBackward& op) {
    require_f32({&op.x, &op.dy, &op.dx});
    LORATRAIN_CHECK(op.scaled.data == nullptr || op.groups == 1, "rows scaled by ", op.groups,
                    " groups of a norm");
    if (op.scaled.data != nullptr) require_f32({&op.scaled});
    const NormWeight weight{static_cast<const float*>(op.weight), op.weight_offset};
    for_groups(threads_, op.x, op.groups,
               [&](std::int64_t row, std::int64_t col, std::int64_t width) {
                   normalize_backward(at(op.x, row, col), weight, at(op.dy, row, col), width,
                                      op.eps, op.accumulate, at(op.dx, row, col));
                   if (op.scaled.data == nullptr) return;
                   scale_row(inverse_rms(at(op.x, row, 0), width, op.eps), op.scaled.cols,
                             at(op.scaled, row, 0));
               });
}

}  // namespace loratrain

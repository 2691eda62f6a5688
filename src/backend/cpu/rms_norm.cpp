#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"

namespace loratrain {

namespace {

void check_groups(std::int64_t cols, std::int64_t groups) {
    LORATRAIN_CHECK(groups >= 1 && cols % groups == 0, "rms_norm of ", cols, " columns in ", groups,
                    " groups");
}

float inverse_rms(const float* x, std::int64_t width, float eps) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < width; ++j) sum += x[j] * x[j];
    return 1.0F / std::sqrt(sum / static_cast<float>(width) + eps);
}

void normalize(const float* x, const float* weight, std::int64_t width, float eps, float* y) {
    const float inverse = inverse_rms(x, width, eps);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[j] = x[j] * inverse * weight[j];
}

void normalize_backward(const float* x, const float* weight, const float* dy, std::int64_t width,
                        float eps, bool accumulate, float* dx) {
    const float inverse = inverse_rms(x, width, eps);
    float dot = 0.0F;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t j = 0; j < width; ++j) dot += x[j] * weight[j] * dy[j];
    const float along = dot * inverse * inverse / static_cast<float>(width);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) {
        const float gradient = inverse * (weight[j] * dy[j] - x[j] * along);
        dx[j] = accumulate ? dx[j] + gradient : gradient;
    }
}

}  // namespace

void CpuBackend::rms_norm(const RmsNorm& op) {
    require_f32({&op.x, &op.y});
    check_groups(op.x.cols, op.groups);
    const std::int64_t width = op.x.cols / op.groups;
    const auto* weight = static_cast<const float*>(op.weight);
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t col = 0; col < op.x.cols; col += width) {
                normalize(op.x.f32() + row * op.x.ld + col, weight, width, op.eps,
                          op.y.f32() + row * op.y.ld + col);
            }
        }
    });
}

void CpuBackend::rms_norm_backward(const RmsNormBackward& op) {
    require_f32({&op.x, &op.dy, &op.dx});
    check_groups(op.x.cols, op.groups);
    const std::int64_t width = op.x.cols / op.groups;
    const auto* weight = static_cast<const float*>(op.weight);
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t col = 0; col < op.x.cols; col += width) {
                normalize_backward(op.x.f32() + row * op.x.ld + col, weight,
                                   op.dy.f32() + row * op.dy.ld + col, width, op.eps, op.accumulate,
                                   op.dx.f32() + row * op.dx.ld + col);
            }
        }
    });
}

}  // namespace loratrain

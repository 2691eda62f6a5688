#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// The angle is rounded to fp32 as Hugging Face's models do, its sine and cosine are exact.
LORATRAIN_VECTOR_CODE
void fill_rotation(const Rope& op, std::int64_t row, float* cosines, float* sines) {
    const std::int64_t half = op.rotated() / 2;
    const auto position = static_cast<float>(op.positions[row]);
    const double direction = op.backward ? -1.0 : 1.0;
#pragma omp simd
    for (std::int64_t j = 0; j < half; ++j) {
        const SinCos rotation = sin_cos_inline(static_cast<double>(position * op.inv_freq[j]));
        cosines[j] = static_cast<float>(rotation.cos);
        sines[j] = static_cast<float>(direction * rotation.sin);
    }
    for (std::int64_t j = 0; op.length != 1.0F && j < half; ++j) {
        cosines[j] *= op.length;
        sines[j] *= op.length;
    }
}

LORATRAIN_VECTOR_CODE
void rotate_head(const float* cosines, const float* sines, std::int64_t half, float* x) {
#pragma omp simd
    for (std::int64_t j = 0; j < half; ++j) {
        const float low = x[j];
        const float high = x[j + half];
        x[j] = low * cosines[j] - high * sines[j];
        x[j + half] = high * cosines[j] + low * sines[j];
    }
}

LORATRAIN_VECTOR_CODE
void rotate_pairs(const float* cosines, const float* sines, std::int64_t half, float* x) {
#pragma omp simd
    for (std::int64_t j = 0; j < half; ++j) {
        const float first = x[2 * j];
        const float second = x[2 * j + 1];
        x[2 * j] = first * cosines[j] - second * sines[j];
        x[2 * j + 1] = second * cosines[j] + first * sines[j];
    }
}

float scale_of(const Rope& op, std::int64_t row) {
    const auto position = static_cast<float>(op.positions[row]);
    return 1.0F + op.scale_beta * std::log(1.0F + std::floor(position / op.scale_period));
}

void scale_head(float scale, std::int64_t head_dim, float* x) {
#pragma omp simd
    for (std::int64_t j = 0; j < head_dim; ++j) x[j] *= scale;
}

}  // namespace

void CpuBackend::rope(const Rope& op) {
    require_f32({&op.x});
    LORATRAIN_CHECK(op.has_sizes_that_fit(), "rope of ", op.x.cols, " columns with head_dim ",
                    op.head_dim, ", of which ", op.rotated(), " are rotated and ",
                    op.scaled_columns, " columns scaled");
    const std::int64_t half = op.rotated() / 2;
    const auto rotate = op.interleaved ? rotate_pairs : rotate_head;
    const ThreadScratch scratch = reserve_scratch(op.head_dim);
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        float* cosines = scratch.local();
        float* sines = cosines + half;
        for (std::int64_t row = begin; row < end; ++row) {
            fill_rotation(op, row, cosines, sines);
            float* x = op.x.f32() + row * op.x.ld;
            for (std::int64_t col = 0; col < op.x.cols; col += op.head_dim) {
                rotate(cosines, sines, half, x + col);
            }
            if (op.scaled_columns == 0) continue;
            const float scale = scale_of(op, row);
            for (std::int64_t col = 0; col < op.scaled_columns; col += op.head_dim) {
                scale_head(scale, op.head_dim, x + col);
            }
        }
    });
}

}  // namespace loratrain

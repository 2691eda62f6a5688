#include "backend/cpu/vector_math.h"

#include "base/vector_code.h"

namespace loratrain {

LORATRAIN_VECTOR_CODE
float largest_of(const float* x, std::int64_t count, float start) {
    float result = start;
#pragma omp simd reduction(max : result)
    for (std::int64_t j = 0; j < count; ++j) result = x[j] > result ? x[j] : result;
    return result;
}

LORATRAIN_VECTOR_CODE
float dot(const float* x, const float* y, std::int64_t count) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) sum += x[j] * y[j];
    return sum;
}

LORATRAIN_VECTOR_CODE
void scale_values(float* x, std::int64_t count, float factor) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) x[j] *= factor;
}

LORATRAIN_VECTOR_CODE
void add_scaled_values(float* y, const float* x, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) y[j] += factor * x[j];
}

}  // namespace loratrain

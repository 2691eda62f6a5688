#pragma once

#include <cstdint>

namespace loratrain {

/// The largest of x[0, count) and `start`; numbers that are not any leave it.
float largest_of(const float* x, std::int64_t count, float start);

/// The sum of x y, in vectors.
float dot(const float* x, const float* y, std::int64_t count);

/// x[0, count) *= factor.
void scale_values(float* x, std::int64_t count, float factor);

}  // namespace loratrain

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/tensor.h"

namespace loratrain::reference {

/// A dense row-major matrix in fp64, the operand and the result of every reference loop.
struct HostMatrix {
    HostMatrix() = default;
    HostMatrix(std::int64_t row_count, std::int64_t col_count, double value = 0.0)
        : rows(row_count), cols(col_count), values(static_cast<std::size_t>(rows * cols), value) {}

    double& operator()(std::int64_t row, std::int64_t col) { return values[row * cols + col]; }
    double operator()(std::int64_t row, std::int64_t col) const { return values[row * cols + col]; }

    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<double> values;
};

inline double rounded_to(DType dtype, double value) {
    const auto single = static_cast<float>(value);
    return dtype == DType::f32 ? single : to_float(to_bfloat16(single));
}

/// Uniform in [-1, 1), rounded to `dtype` so that a backend sees the same numbers.
inline HostMatrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                                DType dtype = DType::f32) {
    HostMatrix result(rows, cols);
    std::uint64_t i = 0;
    for (double& value : result.values) {
        value = rounded_to(dtype, 2.0 * uniform_float(seed, i++) - 1.0);
    }
    return result;
}

}  // namespace loratrain::reference

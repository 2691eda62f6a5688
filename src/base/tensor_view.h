#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace loratrain {

/// The alphabet of shapes, used in every comment of the program:
///   T tokens of a microbatch, H hidden size, F intermediate size, V vocabulary, L layers,
///   D head dimension, Q query heads, G key-value heads, K and N in- and out-features of a linear,
///   r rank of one adapter, R columns of a linear's LoRA pad (all adapters of a microbatch).

/// A row-major matrix [rows, cols] with row stride `ld` (elements), not owned. The memory belongs
/// to a Backend: host memory for the CPU backend, device memory for CUDA.
struct TensorView {
    void* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;

    std::size_t element_size() const { return size_of(dtype); }
    std::int64_t numel() const { return rows * cols; }

    /// Rows [first, first + count).
    TensorView row_range(std::int64_t first, std::int64_t count) const {
        return {offset(first, 0), dtype, count, cols, ld};
    }
    /// Columns [first, first + count), same row stride.
    TensorView col_range(std::int64_t first, std::int64_t count) const {
        return {offset(0, first), dtype, rows, count, ld};
    }
    void* offset(std::int64_t row, std::int64_t col) const {
        return static_cast<char*>(data) + static_cast<std::size_t>(row * ld + col) * element_size();
    }
    float* f32() const { return static_cast<float*>(data); }
};

inline TensorView matrix(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
    return {data, dtype, rows, cols, cols};
}

}  // namespace loratrain

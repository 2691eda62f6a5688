#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace loratrain {

/// Tensors: element types, shapes as lists of extents, and views of matrices.
///
/// The letters that stand for sizes in every comment of the program:
///   T tokens of a microbatch      H hidden size           F intermediate size
///   V vocabulary                  L layers                D head dimension
///   Q query heads                 G key-value heads       K, N in- and out-features of a linear
///   r rank of one adapter         R columns of a linear's LoRA pad (all adapters of a microbatch)

/// Element types. bf16 is stored as its 16 bits.
enum class DType : std::uint8_t { f32, bf16 };

/// Bytes of an element.
constexpr std::size_t size_of(DType dtype) {
    return dtype == DType::f32 ? 4 : 2;
}

inline std::string to_string(DType dtype) {
    return dtype == DType::f32 ? "fp32" : "bf16";
}

/// A bfloat16 number: the upper 16 bits of a float.
struct BFloat16 {
    std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// Rounds to nearest even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
    }
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

/// Product of the extents; 1 for a shape without extents.
inline std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

/// "[3, 5]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::vector<std::string> words;
    words.reserve(shape.size());
    for (const std::int64_t extent : shape) words.push_back(std::to_string(extent));
    return cat("[", join(words, ", "), "]");
}

/// A row-major matrix [rows, cols] with a row stride of `ld` elements. The view does not own the
/// memory, which belongs to a Backend: host memory for the CPU, device memory for CUDA.
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
    /// Columns [first, first + count); the row stride stays.
    TensorView col_range(std::int64_t first, std::int64_t count) const {
        return {offset(0, first), dtype, rows, count, ld};
    }
    /// Address of an element.
    void* offset(std::int64_t row, std::int64_t col) const {
        return static_cast<char*>(data) + static_cast<std::size_t>(row * ld + col) * element_size();
    }
    /// `data` as fp32; the caller knows the type.
    float* f32() const { return static_cast<float*>(data); }
};

/// A view whose rows follow each other without gaps.
inline TensorView matrix(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
    return {data, dtype, rows, cols, cols};
}

}  // namespace loratrain

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace loratrain {

/// Sizes of a GEMM that share a choice of algorithms (backend/cuda/gemm_cublaslt.h).
struct SizesAlike {
    std::int64_t smallest = 0;
    std::int64_t largest = 0;  ///< the one that is timed
};

namespace gemm_shapes {

inline constexpr std::int64_t tile = 64;
inline constexpr std::int64_t many_rows = 4096;
inline constexpr std::int64_t most_rows = 16384;
inline constexpr std::int64_t many_columns = 256;

inline SizesAlike in_steps(std::int64_t size, std::int64_t step) {
    const std::int64_t below = (size - 1) / step * step;
    return {below + 1, below + step};
}

}  // namespace gemm_shapes

/// The class of `rows` (>= 1): up to the next of 8 steps to each power of two, from 4096 on of 4,
/// of a tile at least: 64, 128, ... 1024, 1152, ... 2048, 2304, ... 4096, 5120, ... 8192, 10240.
/// Small products have few waves of tiles, which fit one number of rows and not the next, and take
/// little time to try; large ones take long, and differ less: from 14337 on all rows are of the
/// class that is timed with 16384. Powers of two up to that, which samples of equal lengths make,
/// are what is timed of their class.
inline SizesAlike rows_alike(std::int64_t rows) {
    using namespace gemm_shapes;
    rows = std::min(rows, most_rows);
    const auto below = static_cast<std::int64_t>(
        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows - 1))));
    return in_steps(rows, std::max(tile, below / (below < many_rows ? 8 : 4)));
}

/// The class of a matrix's columns, those of LoRA beside it included: up to the next multiple of a
/// tile, from 256 on of 256, which the matrices of most models have: there so many LoRA columns
/// are one class, whatever the matrix.
inline SizesAlike columns_alike(std::int64_t columns) {
    using namespace gemm_shapes;
    return in_steps(columns, columns <= many_columns ? tile : many_columns);
}

/// The most LoRA columns of the class of `columns` (0 or more) beside such a matrix: 0, 256, 512
/// ...
inline std::int64_t lora_columns_alike(std::int64_t columns) {
    using namespace gemm_shapes;
    return columns_alike(many_columns + columns).largest - many_columns;
}

}  // namespace loratrain

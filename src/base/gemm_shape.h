#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace loratrain {

/// Classes of GEMM sizes: sizes of a class share one choice of algorithm, timed with the largest
/// size of the class (backend/cuda/gemm_cublaslt.h).
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

/// The class of `rows` (>= 1). Largest sizes of classes: 64, 128, ... 1024, 1152, ... 2048, 2304,
/// ... 4096, 5120, ... 8192, 10240, ... 16384. So a power of two is divided into 8 classes, from
/// 4096 on into 4, each at least one tile wide; all rows from 14337 on are one class.
///   - Small GEMMs have few waves of tiles: an algorithm that fits one number of rows may not fit
///     the next one. Timing them takes little time.
///   - Large GEMMs take long to time and differ less.
///   - Every power of two up to 16384 is a size that is timed: samples of equal lengths have such
///     numbers of rows.
inline SizesAlike rows_alike(std::int64_t rows) {
    using namespace gemm_shapes;
    rows = std::min(rows, most_rows);
    const auto below = static_cast<std::int64_t>(
        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows - 1))));
    return in_steps(rows, std::max(tile, below / (below < many_rows ? 8 : 4)));
}

/// The class of a matrix's columns, LoRA columns beside it included: up to the next multiple of a
/// tile; above 256 columns, of 256. The matrices of most models have a multiple of 256 columns, so
/// the class of the LoRA columns beside them does not depend on the matrix.
inline SizesAlike columns_alike(std::int64_t columns) {
    using namespace gemm_shapes;
    return in_steps(columns, columns <= many_columns ? tile : many_columns);
}

/// The most LoRA columns in the class of `columns` LoRA columns (>= 0) beside a matrix with a
/// multiple of 256 columns: 0, 256, 512, ...
inline std::int64_t lora_columns_alike(std::int64_t columns) {
    using namespace gemm_shapes;
    return columns_alike(many_columns + columns).largest - many_columns;
}

}  // namespace loratrain

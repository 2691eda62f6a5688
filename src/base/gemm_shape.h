#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace loratrain {

/// Sizes of a GEMM that share a choice of algorithm (backend/cuda/gemm_cublaslt.h): those that
/// round up to the same sixteenth of a power of two, at least of a tile.
struct SizesAlike {
    std::int64_t smallest = 0;
    std::int64_t largest = 0;
};

/// The ones that `size` (>= 1) belongs to.
inline SizesAlike sizes_alike(std::int64_t size) {
    constexpr std::uint64_t tile = 64;
    const auto below = static_cast<std::uint64_t>(size - 1);
    const std::uint64_t step = std::max(tile, std::bit_floor(below) / 16);
    const auto first = static_cast<std::int64_t>(below / step * step);
    return {first + 1, first + static_cast<std::int64_t>(step)};
}

}  // namespace loratrain

#pragma once

#include <cstdint>

#include "kernels/device_math.cuh"
#include "lora_table.h"

namespace loratrain::kernels {

/// Sets the columns of one row of S or dS outside [begin, end) to 0. Called by the threads
/// `part` = 0 .. parts - 1.
__device__ __forceinline__ void clear_outside(Bf16* row, int columns, int begin, int end, int part,
                                              int parts) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(row) % 16 == 0;
    for (int first = part * wide; first < columns; first += parts * wide) {
        const bool whole = first + wide <= columns && (first + wide <= begin || first >= end);
        if (whole && aligned) {
            *reinterpret_cast<uint4*>(row + first) = make_uint4(0, 0, 0, 0);
            continue;
        }
        for (int column = first; column < min(first + wide, columns); ++column) {
            if (column < begin || column >= end) row[column] = from_float<Bf16>(0.0F);
        }
    }
}

/// True for a slot whose B can be read four ranks at once; its rank is then a multiple of four.
__device__ __forceinline__ bool has_aligned_b(const LoraSlotEntry& slot) {
    return slot.rank % 4 == 0 && reinterpret_cast<std::uintptr_t>(slot.b) % 16 == 0;
}

/// Four ranks of a column of B; 0 from `ranks` on.
template <bool aligned>
__device__ __forceinline__ float4 four_of_factor(const float* column, int first, int ranks) {
    if constexpr (aligned) {
        return first < ranks ? *reinterpret_cast<const float4*>(column + first)
                             : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
    return make_float4(
        first < ranks ? column[first] : 0.0F, first + 1 < ranks ? column[first + 1] : 0.0F,
        first + 2 < ranks ? column[first + 2] : 0.0F, first + 3 < ranks ? column[first + 3] : 0.0F);
}

}  // namespace loratrain::kernels

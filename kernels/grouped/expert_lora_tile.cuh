#pragma once

#include "expert_lora.h"
#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"
#include "kernels/tensor_core.cuh"

/// Pieces of LoRA's kernels in experts.

namespace loratrain::kernels::grouped {

constexpr int lora_threads = 256;
constexpr int lora_warps = lora_threads / 32;
constexpr int lora_columns = 64;
using LoraTile = Tile<lora_columns>;

/// What the narrow and the gradient kernel read.
struct ExpertLoraArguments {
    ExpertRows rows;
    ExpertWide wide;
    Matrix s;
    ExpertLoraSlices slices;
};

/// The kernels take the operands: bf16 in pieces of 16 bytes.
inline bool lora_takes(const ExpertWide& wide, const Matrix& s, const ExpertLoraSlices& slices) {
    return grouped_takes(wide.x) && grouped_takes(s) && wide.x.cols == slices.cols;
}

/// Columns of s that adapters with rows of a tile have; end <= begin: none.
struct LoraColumns {
    int begin;
    int end;
};
__device__ __forceinline__ LoraColumns columns_of(const ExpertLoraSlices& slices,
                                                  const std::int32_t* rows,
                                                  const ExpertTile& tile) {
    const int first = rows[tile.first];
    const int last = rows[tile.end - 1];
    LoraColumns columns{INT32_MAX, 0};
    for (int i = 0; i < slices.count; ++i) {
        const ExpertLoraSlice& slice = slices.slices[i];
        if (slice.begin > last || slice.end <= first) continue;
        columns.begin = min(columns.begin, slice.column);
        columns.end = max(columns.end, slice.column + slice.rank);
    }
    return columns;
}

}  // namespace loratrain::kernels::grouped

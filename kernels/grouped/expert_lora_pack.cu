#include <algorithm>

#include "expert_lora_tile.cuh"

/// Factors of all experts side by side, as a grouped product reads what it adds.

namespace loratrain::kernels {

namespace grouped {

namespace {

struct PackParams {
    ExpertRows rows;
    ExpertLoraSlices slices;
    int outputs;
    int columns;
    Bf16* factors;
    bool only_finite;
};

/// AddedColumns of a tile.
__device__ __forceinline__ void note_columns(const PackParams& p, int tile) {
    ExpertTile& of = p.rows.tables.tiles[tile];
    const LoraColumns columns = columns_of(p.slices, p.rows.routes.rows, of);
    if (columns.end <= columns.begin) {
        of.added = 0;
        return;
    }
    const int begin = columns.begin / wide * wide;
    of.added = AddedColumns{begin, (columns.end - begin + added_step - 1) / added_step}.packed();
}

__device__ __forceinline__ float finite(float value) {
    const float rounded = to_float(from_float<Bf16>(value));
    return isfinite(rounded) ? value : 0.0F;
}

/// The slice that has a column of s; null if none has.
__device__ __forceinline__ const ExpertLoraSlice* slice_of(const ExpertLoraSlices& slices, int c) {
    for (int i = 0; i < slices.count; ++i) {
        const int r = c - slices.slices[i].column;
        if (r >= 0 && r < slices.slices[i].rank) return slices.slices + i;
    }
    return nullptr;
}

/// Rows of B: 8 columns of s from c on, of column n of the result.
__device__ __forceinline__ void read_b(const PackParams& p, int expert, int c, int n,
                                       float (&v)[wide]) {
    const ExpertLoraSlice* slice = slice_of(p.slices, c);
    if (slice != nullptr && c + wide <= slice->column + slice->rank) {
        const int own = n - slice->first;
        const bool inside = own >= 0 && own < p.slices.cols;
        const float* from = slice->factor +
                            (expert * p.slices.cols + (inside ? own : 0)) * slice->rank + c -
                            slice->column;
        if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
            if (inside) return load<wide>(from, v);
#pragma unroll
            for (float& value : v) value = 0.0F;
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < wide; ++i) {
        if (slice == nullptr || c + i >= slice->column + slice->rank) {
            slice = slice_of(p.slices, c + i);
        }
        v[i] = 0.0F;
        if (slice == nullptr) continue;
        const int own = n - slice->first;
        if (own < 0 || own >= p.slices.cols) continue;
        v[i] = slice->factor[(expert * p.slices.cols + own) * slice->rank + c + i - slice->column];
    }
}

/// A row of A: 8 columns of the result from n on.
__device__ __forceinline__ void read_a(const PackParams& p, int expert, int c, int n,
                                       float (&v)[wide]) {
    const ExpertLoraSlice* slice = slice_of(p.slices, c);
#pragma unroll
    for (int i = 0; i < wide; ++i) v[i] = 0.0F;
    if (slice == nullptr) return;
    const int own = n - slice->first;
    const float* row =
        slice->factor + (expert * slice->rank + c - slice->column) * p.slices.cols + own;
    if (own >= 0 && own + wide <= p.slices.cols &&
        reinterpret_cast<std::uintptr_t>(row) % 16 == 0) {
        return load<wide>(row, v);
    }
#pragma unroll
    for (int i = 0; i < wide; ++i) {
        if (own + i >= 0 && own + i < p.slices.cols) v[i] = row[i];
    }
}

/// A thread makes 8 neighbouring values of an expert: of B 8 columns of s, of A 8 columns of the
/// result.
__global__ void __launch_bounds__(lora_threads) pack_kernel(const __grid_constant__ PackParams p) {
    wait_for_kernel_before();
    if (blockIdx.y == gridDim.y - 1) {
        const int tile = static_cast<int>(blockIdx.x * lora_threads + threadIdx.x);
        if (tile < *p.rows.tables.counters) note_columns(p, tile);
        return;
    }
    const int expert = static_cast<int>(blockIdx.y);
    const int at = static_cast<int>(blockIdx.x * lora_threads + threadIdx.x) * wide;
    if (at >= p.outputs * p.columns) return;
    float v[wide];
    if (p.slices.of_b) {
        read_b(p, expert, at % p.columns, at / p.columns, v);
    } else {
        read_a(p, expert, at / p.outputs, at % p.outputs, v);
    }
    if (p.only_finite) {
#pragma unroll
        for (float& value : v) value = finite(value);
    }
    store<wide>(p.factors + std::int64_t{expert} * p.outputs * p.columns + at, v);
}

}  // namespace

}  // namespace grouped

cudaError_t pack_expert_factors(cudaStream_t stream, const ExpertRows& rows,
                                const ExpertLoraSlices& slices, std::int64_t outputs,
                                std::int64_t columns, void* factors, bool only_finite) {
    using namespace grouped;
    if (outputs % wide != 0 || columns % wide != 0 || columns > AddedColumns::most ||
        outputs * columns > INT32_MAX || !aligned_16(factors)) {
        return cudaErrorInvalidValue;
    }
    const std::int64_t copies = rows.routes.tokens * rows.routes.per_token;
    const std::int64_t tiles = most_expert_tiles(copies, rows.routes.experts);
    const std::int64_t pieces_of_expert = outputs * columns / wide;
    const PackParams params{rows,
                            slices,
                            static_cast<int>(outputs),
                            static_cast<int>(columns),
                            static_cast<Bf16*>(factors),
                            only_finite};
    // The last row of blocks writes ExpertTile::added.
    const dim3 blocks(
        static_cast<unsigned>(pieces(std::max(tiles, pieces_of_expert), lora_threads)),
        static_cast<unsigned>(rows.routes.experts + 1));
    return launch_early(stream, pack_kernel, blocks, lora_threads, 0, params);
}

}  // namespace loratrain::kernels

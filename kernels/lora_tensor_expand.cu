#include "dropout.cuh"
#include "launch.cuh"
#include "lora_tensor.h"
#include "tensor_core.cuh"

namespace loratrain::kernels {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int rows = lora_tensor_expand_rows;
constexpr int block_ranks = 16;

/// Sums of a warp's 64 rows and 32 columns: [row block of 16][word w][..], where lane (g, q) holds
/// rows g and g + 8 and the columns 8q + 2w and 8q + 2w + 1.
using Sums = float[rows / 16][4][4];

struct Lane {
    int g;
    int q;
    std::int64_t column;  ///< first of the warp's 32
};

__device__ __forceinline__ float factor_value(const LoraExpandParams& p, const LoraSlotEntry& slot,
                                              int rank, std::int64_t column) {
    if (rank >= slot.rank || column >= p.y.cols) return 0.0F;
    return p.of_a ? slot.a[rank * p.y.cols + column] : slot.b[column * slot.rank + rank];
}

/// B fragments [16 ranks, 8 columns] of the four words.
__device__ __forceinline__ void load_factor(const LoraExpandParams& p, const LoraSlotEntry& slot,
                                            int first_rank, const Lane& lane,
                                            std::uint32_t (&fragment)[4][2]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const std::int64_t column = lane.column + lane.g / 2 * 8 + 2 * w + lane.g % 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int rank = first_rank + half * 8 + 2 * lane.q;
            fragment[w][half] = pack_halves(factor_value(p, slot, rank, column),
                                            factor_value(p, slot, rank + 1, column));
        }
    }
}

/// The bf16 of S at (row, rank) and (row, rank + 1), 0 outside.
__device__ __forceinline__ std::uint32_t s_pair(const Matrix& s, const LoraSlotEntry& slot, int row,
                                                int end, int rank) {
    std::uint32_t pair = 0;
    if (row >= end) return pair;
    const auto* source =
        static_cast<const std::uint16_t*>(s.data) + row * s.ld + slot.column + rank;
    if (rank < slot.rank) pair = source[0];
    if (rank + 1 < slot.rank) pair |= static_cast<std::uint32_t>(source[1]) << 16U;
    return pair;
}

/// sums += S factor of one target.
__device__ __forceinline__ void add_product(const LoraExpandParams& p, const Matrix& s,
                                            const LoraSlotEntry& slot, const LoraTile& tile,
                                            const Lane& lane, Sums& sums) {
    for (int rank = 0; rank < slot.rank; rank += block_ranks) {
        std::uint32_t factor[4][2];
        load_factor(p, slot, rank, lane, factor);
#pragma unroll
        for (int m = 0; m < rows / 16; ++m) {
            const int row = tile.begin + m * 16 + lane.g;
            const int first = rank + 2 * lane.q;
            const std::uint32_t a0 = s_pair(s, slot, row, tile.end, first);
            const std::uint32_t a1 = s_pair(s, slot, row + 8, tile.end, first);
            const std::uint32_t a2 = s_pair(s, slot, row, tile.end, first + 8);
            const std::uint32_t a3 = s_pair(s, slot, row + 8, tile.end, first + 8);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                multiply_add(sums[m][w], a0, a1, a2, a3, factor[w][0], factor[w][1]);
            }
        }
    }
}

/// totals += what dropout keeps of `sums`, times 1/(1-p).
__device__ __forceinline__ void add_kept(const LoraExpandParams& p, const LoraSlotEntry& slot,
                                         std::uint32_t step, const LoraTile& tile, const Lane& lane,
                                         const Sums& sums, Sums& totals) {
    const float scale = dropout_scale(slot.dropout);
    const auto block = static_cast<std::uint32_t>(lane.column / 8 + lane.q);
#pragma unroll
    for (int i = 0; i < rows / 8; ++i) {
        const int row = min(tile.begin + i * 8 + lane.g, tile.end - 1);
        const uint4 bits = dropout_bits(slot.dropout_key, step,
                                        static_cast<std::uint32_t>(p.tables.sample_ids[row]),
                                        static_cast<std::uint32_t>(p.tables.positions[row]), block);
        const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const int at = i % 2 * 2;
            if ((words[w] & 0xffffU) >= slot.dropout) {
                totals[i / 2][w][at] += scale * sums[i / 2][w][at];
            }
            if (words[w] >> 16U >= slot.dropout) {
                totals[i / 2][w][at + 1] += scale * sums[i / 2][w][at + 1];
            }
        }
    }
}

__device__ __forceinline__ void write_rows(const LoraExpandParams& p, const LoraTile& tile,
                                           const Lane& lane, const Sums& totals) {
    const std::int64_t column = lane.column + 8 * lane.q;
#pragma unroll
    for (int i = 0; i < rows / 8; ++i) {
        const int row = tile.begin + i * 8 + lane.g;
        if (row >= tile.end || column >= p.y.cols) continue;
        Bf16* y = static_cast<Bf16*>(p.y.data) + row * p.y.ld + column;
        float v[wide];
#pragma unroll
        for (int j = 0; j < wide; ++j) v[j] = totals[i / 2][j / 2][i % 2 * 2 + j % 2];
        if (column + wide <= p.y.cols) {
            float before[wide] = {};
            if (p.accumulate) load<wide>(y, before);
#pragma unroll
            for (int j = 0; j < wide; ++j) v[j] += before[j];
            store<wide>(y, v);
        } else {
#pragma unroll
            for (int j = 0; j < wide; ++j) {
                if (column + j >= p.y.cols) continue;
                y[j] = from_float<Bf16>(p.accumulate ? to_float(y[j]) + v[j] : v[j]);
            }
        }
    }
}

/// One tile of 64 rows; each warp has 32 columns.
template <bool with_dropout>
__global__ void __launch_bounds__(threads)
    expand_kernel(const __grid_constant__ LoraExpandParams p) {
    const LoraTile tile = p.tables.tiles[blockIdx.x];
    if (tile.segment < 0 && p.accumulate) return;
    const Lane lane{
        static_cast<int>(threadIdx.x) % 32 / 4, static_cast<int>(threadIdx.x) % 4,
        (static_cast<std::int64_t>(blockIdx.y) * warps + threadIdx.x / 32) * chunk_columns};
    Sums totals = {};
    if (tile.segment >= 0) {
        const LoraSegmentEntry segment = p.tables.segments[tile.segment];
        for (int target = 0; target < p.tables.target_count; ++target) {
            const LoraSlotEntry& slot = p.tables.slots[target * p.tables.slot_count + segment.slot];
            if (slot.rank == 0) continue;
            if (with_dropout && slot.dropout > 0) {
                Sums sums = {};
                add_product(p, p.s[target], slot, tile, lane, sums);
                add_kept(p, slot, segment.step, tile, lane, sums, totals);
            } else {
                add_product(p, p.s[target], slot, tile, lane, totals);
            }
        }
    }
    write_rows(p, tile, lane, totals);
}

}  // namespace

cudaError_t lora_expand_tensor(cudaStream_t stream, const LoraExpandParams& p) {
    constexpr std::int64_t columns = warps * chunk_columns;
    const dim3 grid(static_cast<unsigned>(p.tables.tile_count),
                    static_cast<unsigned>((p.y.cols + columns - 1) / columns));
    if (grid.x == 0 || grid.y == 0) return cudaSuccess;
    if (p.of_a && p.tables.dropout) {
        expand_kernel<true><<<grid, threads, 0, stream>>>(p);
    } else {
        expand_kernel<false><<<grid, threads, 0, stream>>>(p);
    }
    return cudaGetLastError();
}

}  // namespace loratrain::kernels

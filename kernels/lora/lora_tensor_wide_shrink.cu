#include <algorithm>

#include "kernels/launch.cuh"
#include "lora_finish.cuh"
#include "lora_tensor.h"
#include "lora_wide_product.cuh"

namespace loratrain::kernels {

using namespace sweep;

namespace {

constexpr int blocks = 4;  ///< of ranks, in a thread block

struct WideShrinkParams {
    Matrix x;
    LoraTables tables;
    int parts;        ///< of the columns of X
    int rank_groups;  ///< of `blocks` rank blocks: those of a slot in all targets, at most
    float* sums;      ///< [rank blocks of a slot in all targets, parts, T, 16]
};

/// Whether rows of A of a slot can be read two columns at once, which are then all there or none
/// is.
__device__ __forceinline__ bool has_aligned_a(const WideShrinkParams& p, int slot) {
    bool aligned = p.x.cols % 2 == 0;
    for (int target = 0; target < p.tables.target_count; ++target) {
        const float* a = p.tables.slots[target * p.tables.slot_count + slot].a;
        aligned = aligned && reinterpret_cast<std::uintptr_t>(a) % 8 == 0;
    }
    return aligned;
}

/// Two neighbouring columns of a row of A, 0 from `left` on.
template <bool aligned>
__device__ __forceinline__ float2 two_of_row(const float* a, int left) {
    if constexpr (aligned) {
        return left > 0 ? *reinterpret_cast<const float2*>(a) : make_float2(0.0F, 0.0F);
    }
    return make_float2(left > 0 ? a[0] : 0.0F, left > 1 ? a[1] : 0.0F);
}

/// Goes through A of a slot's rank blocks line by line. A warp has 8 ranks of both chunks, a lane
/// of them what it holds as B fragments.
template <bool aligned>
struct RowFeeder {
    using Product = WideProduct<blocks>;
    static constexpr int pairs = line_columns / 8;
    static_assert(Product::eights == wide_warps && Product::turns == Product::chunks);
    struct Part {
        float2 pair[pairs];
    };
    const float* a;  ///< of this lane's rank and first column
    int columns;     ///< from there to the part's last; 0: no such rank

    __device__ __forceinline__ RowFeeder(const WideShrinkParams& p,
                                         const BlockRanks (&rank_blocks)[blocks], int slot,
                                         int first_column, int column_count) {
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const BlockRanks& block = rank_blocks[warp / 2];
        const int rank = warp % 2 * 8 + lane / 4;
        const float* factor = p.tables.slots[block.target * p.tables.slot_count + slot].a;
        const std::int64_t row = block.first + rank;
        a = factor + row * p.x.cols + first_column + lane % 4 * 2;
        columns = rank < block.ranks ? column_count - lane % 4 * 2 : 0;
    }
    /// Loads a line, and goes to the next one.
    __device__ __forceinline__ void load(Part& part) {
#pragma unroll
        for (int i = 0; i < pairs; ++i) {
            part.pair[i] = two_of_row<aligned>(a + i * 8, columns - i * 8);
        }
        a += line_columns;
        columns -= line_columns;
    }
    __device__ __forceinline__ static void store(const Part& part, uint4* staged) {
        const auto packed = [&](int i) { return pack_halves(part.pair[i].x, part.pair[i].y); };
#pragma unroll
        for (int chunk = 0; chunk < Product::chunks; ++chunk) {
            staged[chunk * Product::eights * 32 + threadIdx.x] =
                make_uint4(packed(chunk * 4), packed(chunk * 4 + 1), packed(chunk * 4 + 2),
                           packed(chunk * 4 + 3));
        }
    }
};

/// S of a tile, of `block_count` rank blocks and the columns of one part.
template <bool aligned>
__device__ __forceinline__ void shrink_part(const WideShrinkParams& p, const LoraTile& tile,
                                            const BlockRanks (&rank_blocks)[blocks],
                                            int block_count, int group, int part, uint4* staging) {
    const int first_column = part * part_columns;
    const int column_count = min(part_columns, static_cast<int>(p.x.cols) - first_column);
    const int warp_row = tile.begin + static_cast<int>(threadIdx.x) / 32 * block_rows;
    RowFeeder<aligned> factors(p, rank_blocks, tile.slot, first_column, column_count);
    float sums[block_rows / 16][blocks * 2][4] = {};
    multiply_lines<blocks>(p.x, warp_row, tile.end, first_column, column_count, factors,
                           block_count, staging, sums);
    const std::int64_t of_part = p.x.rows * block_ranks;
    write_part<blocks>(p.sums + (group * blocks * p.parts + part) * of_part, p.parts * of_part,
                       warp_row, tile.end, block_count, sums);
}

/// blockIdx.x: part and group of rank blocks; blockIdx.y: the tile, of at most wide_rows rows.
__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    wide_shrink_kernel(WideShrinkParams p) {
    extern __shared__ uint4 staging[];
    __shared__ BlockRanks rank_blocks[blocks];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const int group = static_cast<int>(blockIdx.x) % p.rank_groups;
    const int part = static_cast<int>(blockIdx.x) / p.rank_groups;
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] =
            find_ranks(p.tables, tile.slot, group * blocks + static_cast<int>(threadIdx.x), 0,
                       p.tables.target_count);
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].ranks > 0 ? 1 : 0;
    if (block_count == 0) return;
    if (has_aligned_a(p, tile.slot)) {
        shrink_part<true>(p, tile, rank_blocks, block_count, group, part, staging);
    } else {
        shrink_part<false>(p, tile, rank_blocks, block_count, group, part, staging);
    }
}

struct Outputs {
    Matrix of[max_lora_targets + 1];  ///< the last: `again` of the first
};

/// blockIdx.y: rank block of the target; blockIdx.z: the target, or behind them the first again.
__global__ void __launch_bounds__(threads) finish_wide_shrink(WideShrinkParams p, Outputs s) {
    wait_for_kernel_before();
    const auto z = static_cast<int>(blockIdx.z);
    const int target = z < p.tables.target_count ? z : 0;
    const auto rank_block = static_cast<int>(blockIdx.y);
    const auto first_part = [&](int slot) {
        int before = rank_block;
        for (int t = 0; t < target; ++t) {
            before += (p.tables.slots[t * p.tables.slot_count + slot].rank + block_ranks - 1) /
                      block_ranks;
        }
        return before * p.parts;
    };
    finish_product(p.tables, s.of[z == target ? z : max_lora_targets], target, rank_block,
                   static_cast<int>(blockIdx.x * threads + threadIdx.x), p.sums, p.parts,
                   first_part);
}

}  // namespace

bool lora_tensor_shrinks_wide(const LoraShrinkParams& p) {
    static_assert(wide_rows == lora_wide_shrink_rows);
    return p.tile_rows == wide_rows;
}

std::int64_t lora_tensor_wide_shrink_workspace(const LoraShrinkParams& p) {
    return pieces(p.x.cols, part_columns) * p.x.rows * p.tables.largest_rank_sum *
           static_cast<std::int64_t>(sizeof(float));
}

cudaError_t lora_tensor_wide_shrink(cudaStream_t stream, const LoraShrinkParams& p) {
    const WideShrinkParams wide{p.x, p.tables, pieces(p.x.cols, part_columns),
                                pieces(p.tables.largest_rank_sum, blocks * block_ranks),
                                static_cast<float*>(p.workspace)};
    constexpr int shared = WideProduct<blocks>::bytes;
    static const cudaError_t raised =
        allow_shared(reinterpret_cast<const void*>(wide_shrink_kernel), shared, p.shared_limit);
    if (raised != cudaSuccess) return raised;
    const dim3 grid(static_cast<unsigned>(wide.parts * wide.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    const cudaError_t status =
        launch_early(stream, wide_shrink_kernel, grid, wide_threads, shared, wide);
    if (status != cudaSuccess) return status;
    Outputs s{};
    std::copy_n(p.s, p.tables.target_count, s.of);
    s.of[max_lora_targets] = p.again;
    const dim3 finish(
        static_cast<unsigned>(pieces(p.x.rows * groups_of_block, threads)),
        static_cast<unsigned>(pieces(p.tables.largest_rank, block_ranks)),
        static_cast<unsigned>(p.tables.target_count) + (p.again.data == nullptr ? 0U : 1U));
    return launch_early(stream, finish_wide_shrink, finish, threads, 0, wide, s);
}

}  // namespace loratrain::kernels

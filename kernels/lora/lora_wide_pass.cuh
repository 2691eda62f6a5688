#pragma once

#include "lora_pass.cuh"

/// The pass for the gradients of slots of many ranks, without dropout: up to 64 ranks in one pass
/// over X or dY. A block's warps take the same 32 rows, and 64 columns each. Gradients are summed
/// in the order of the warps of pass_kernel() that share columns alone.
namespace loratrain::kernels::pass {

constexpr int wide_threads = 256;
constexpr int wide_warps = wide_threads / 32;

template <int blocks>
struct Wide {
    static_assert(blocks == 2 || blocks == 4);
    static constexpr int thread_count = wide_threads;
    static constexpr int stages = 3;
    static constexpr int column_warps = wide_warps;
    static constexpr int row_warps = 1;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int lines = block_columns / line_columns;
    static_assert(chunks == 1 && lines * 2 == wide_warps);
    static constexpr int s_start = lines * stage_pieces;  ///< place of S in a stage
    static constexpr int step_pieces = s_start + blocks * s_pieces;
    static constexpr int scratch_bytes = blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes = std::max(stages * step_pieces * 16, scratch_bytes);
    static constexpr int of_block = bytes + blocks * static_cast<int>(sizeof(RankBlock));
    static_assert(of_block <= least_shared_bytes);
};

/// Copies 32 rows of a block's columns and of S, step by step; each warp copies half of the rows of
/// a line and of a rank block.
template <class Shape, int blocks>
struct WideFeeder {
    uint4* staging;
    const Bf16* x;  ///< the tile's first row, the block's first column
    std::int64_t ld;
    int columns;  ///< from the block's first to the last of X
    int first_row;
    int end_row;
    const RankBlock* rank_blocks;

    __device__ __forceinline__ uint4* stage_of(int step) const {
        return staging + step % Shape::stages * Shape::step_pieces;
    }
    __device__ __forceinline__ const uint4* line_of(int step, int line) const {
        return stage_of(step) + line * stage_pieces;
    }
    __device__ __forceinline__ const uint4* s_of(int step, int block) const {
        return stage_of(step) + Shape::s_start + block * s_pieces;
    }
    __device__ __forceinline__ void fetch(int step) const {
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        constexpr int half_rows = block_rows / 2;
        static_assert(half_rows % 8 == 0 &&
                      s_pieces == 2 * 32);  // staged_piece repeats every 8 rows
        const int down = step * block_rows + warp % 2 * half_rows;
        const int first = warp / 2 * line_columns;
        copy_line_async<half_rows>(
            stage_of(step) + warp / 2 * stage_pieces + warp % 2 * half_rows * line_pieces,
            x + down * ld + first, ld, end_row - first_row - down, columns - first);
        const int block = warp / 2;
        if (block >= blocks || rank_blocks[block].ranks == 0) return;
        stage_s_piece(stage_of(step) + Shape::s_start + block * s_pieces + warp % 2 * 32 + lane,
                      rank_blocks[block], first_row + down + lane / 2, end_row, lane % 2);
    }
};

/// sums += Sᵀ X of this warp's chunk of one step.
template <class Shape, int blocks, class Feed>
__device__ __forceinline__ void add_wide_outer(const Feed& feeder, int step, int block_count,
                                               float (&sums)[blocks][Shape::chunks][4][4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint4* staged = feeder.line_of(step, warp / 2);
    Columns fragments;
    load_columns([&](int r, int piece) { return staged + staged_piece(r, warp % 2 * 4 + piece); },
                 fragments);
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
        if (b < block_count) {
            std::uint32_t s[block_rows / 16][4];
#pragma unroll
            for (int m = 0; m < block_rows / 16; ++m) {
                load_transposed_block(feeder.s_of(step, b) + m * 32, s[m]);
            }
            add_outer(s, fragments, sums[b][0]);
        }
    }
}

/// Finds rank blocks group * blocks .. of a tile's slot; returns their number.
template <int blocks, bool with_ds>
__device__ __forceinline__ int find_rank_blocks(const PassParams& p, const LoraTile& tile,
                                                const ColumnBlock& columns, int group,
                                                RankBlock (&rank_blocks)[blocks]) {
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] = find_rank_block<with_ds>(
            p, tile, columns, group * blocks + static_cast<int>(threadIdx.x));
    }
    __syncthreads();
    int count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) count += rank_blocks[b].ranks > 0 ? 1 : 0;
    return count;
}

/// The gradients of one tile, one column block and one group of rank blocks.
template <int blocks, bool with_ds>
__device__ __forceinline__ void pass_wide(const PassParams& p, const LoraTile& tile,
                                          const ColumnBlock& columns, int group, uint4* staging) {
    using Shape = Wide<blocks>;
    __shared__ RankBlock rank_blocks[blocks];
    const int block_count = find_rank_blocks<blocks, with_ds>(p, tile, columns, group, rank_blocks);
    if (block_count == 0) return;

    WideFeeder<Shape, blocks> feeder;
    feeder.staging = staging;
    feeder.x = static_cast<const Bf16*>(p.x.data) + tile.begin * p.x.ld + columns.first;
    feeder.ld = p.x.ld;
    feeder.columns = columns.end - columns.first;
    feeder.first_row = tile.begin;
    feeder.end_row = tile.end;
    feeder.rank_blocks = rank_blocks;
    const int steps = (tile.end - tile.begin + block_rows - 1) / block_rows;
#pragma unroll
    for (int i = 0; i < Shape::stages - 1; ++i) {
        if (i < steps) feeder.fetch(i);
        commit_pieces();
    }
    float sums[blocks][Shape::chunks][4][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_pieces<Shape::stages - 2>();
        __syncthreads();
        if (step + Shape::stages - 1 < steps) feeder.fetch(step + Shape::stages - 1);
        commit_pieces();
        add_wide_outer<Shape, blocks>(feeder, step, block_count, sums);
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<Shape, blocks, with_ds, false, !with_ds>(
        p, rank_blocks, columns, group, block_count, sums, reinterpret_cast<float*>(staging));
}

}  // namespace loratrain::kernels::pass

#pragma once

#include "kernels/launch.cuh"
#include "lora_sweep_tile.cuh"

/// The sweep itself for dA: partial sums of the gradients per tile of rows, which the caller adds
/// up; and where gradients of both factors go.
namespace loratrain::kernels::sweep {

/// Tiles [first, end) in which all of a slot's are; a block's threads look for them together.
struct TileRange {
    int first;
    int end;
};
__device__ __forceinline__ TileRange tiles_of_slot(const LoraTables& tables, int slot) {
    __shared__ TileRange range;
    if (threadIdx.x == 0) range = {tables.tile_count, 0};
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tables.tile_count; i += threads) {
        if (tables.tiles[i].slot != slot) continue;
        atomicMin(&range.first, i);
        atomicMax(&range.end, i + 1);
    }
    __syncthreads();
    return range;
}

/// blockIdx.x counts groups of `blocks` rank blocks first, then columns: blocks that read the same
/// rows and columns run side by side and share them in the L2.
__device__ __forceinline__ int rank_group_of_block(const SweepParams& p) {
    return static_cast<int>(blockIdx.x) % p.rank_groups;
}
__device__ __forceinline__ int column_block_of_block(const SweepParams& p) {
    return static_cast<int>(blockIdx.x) / p.rank_groups;
}

/// Rank block `index` of those that a tile's slot has in the targets of `columns`.
template <bool with_ds>
__device__ __forceinline__ RankBlock find_rank_block(const SweepParams& p, const LoraTile& tile,
                                                     const ColumnBlock& columns, int index) {
    RankBlock block = find_block(p.tables, p.s, tile.slot, index, with_ds ? columns.target : 0,
                                 with_ds ? columns.target + 1 : p.tables.target_count);
    if (block.ranks == 0) return block;
    const LoraSlotEntry& slot = p.tables.slots[block.target * p.tables.slot_count + tile.slot];
    block.rank_ld = with_ds ? 1 : static_cast<int>(p.x.cols);
    block.column_ld = with_ds ? slot.rank : 1;
    block.gradient = (with_ds ? slot.grad_b : slot.grad_a) +
                     static_cast<std::int64_t>(block.first) * block.rank_ld +
                     static_cast<std::int64_t>(columns.factor) * block.column_ld;
    return block;
}

/// Where the gradients of 16 ranks and block_columns columns go.
struct GradientBlock {
    float* first;  ///< of the first rank and column
    int rank_ld;   ///< from one rank to the next
    int column_ld;
    int ranks;
    int columns;
    bool begins;  ///< written, not added to
};

/// Which of a GradientBlock's 16 ranks and 256 columns a thread writes in turn `turn`: neighbours
/// write what lies side by side.
template <bool with_ds, int thread_count>
__device__ __forceinline__ int rank_of_turn(int turn) {
    constexpr int turns = block_columns / thread_count;
    return with_ds ? static_cast<int>(threadIdx.x) % block_ranks : turn / turns;
}
template <bool with_ds, int thread_count>
__device__ __forceinline__ int column_of_turn(int turn) {
    constexpr int turns = block_columns / thread_count;
    return with_ds
               ? static_cast<int>(threadIdx.x) / block_ranks + turn * (thread_count / block_ranks)
               : static_cast<int>(threadIdx.x) + turn % turns * thread_count;
}

/// Writes sums, or adds them times `scale`. `sum_of(rank, column)`.
template <bool with_ds, bool add, int thread_count, class SumOf>
__device__ __forceinline__ void put_gradients(const GradientBlock& block, float scale,
                                              const SumOf& sum_of) {
    constexpr int at_once = 8;
    constexpr int turns = block_ranks * block_columns / thread_count;
    static_assert(turns % at_once == 0);
#pragma unroll 1
    for (int first = 0; first < turns; first += at_once) {
        float before[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int rank = rank_of_turn<with_ds, thread_count>(first + j);
            const int column = column_of_turn<with_ds, thread_count>(first + j);
            const bool inside = rank < block.ranks && column < block.columns;
            before[j] = 0.0F;
            if (add && inside && !block.begins) {
                before[j] = block.first[rank * block.rank_ld + column * block.column_ld];
            }
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int rank = rank_of_turn<with_ds, thread_count>(first + j);
            const int column = column_of_turn<with_ds, thread_count>(first + j);
            if (rank >= block.ranks || column >= block.columns) continue;
            const float sum = sum_of(rank, column);
            block.first[rank * block.rank_ld + column * block.column_ld] =
                add ? before[j] + sum * scale : sum;
        }
    }
}

/// Adds the row warps' sums and writes this tile's partial gradients, or adds them to the slot's
/// where it has no other tile.
template <class Shape, int blocks, bool with_ds>
__device__ __forceinline__ void write_gradients(const SweepParams& p, const RankBlock* rank_blocks,
                                                const ColumnBlock& columns, int rank_group,
                                                int block_count,
                                                const float (&sums)[blocks][Shape::chunks][4][4],
                                                float* scratch) {
    constexpr int ranks = blocks * block_ranks;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int row_warp = warp / Shape::column_warps;
    const int left = warp % Shape::column_warps * Shape::chunks * chunk_columns;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int c = 0; c < Shape::chunks; ++c) {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                float* target = scratch + (row_warp * ranks + b * block_ranks + g) * scratch_ld +
                                left + c * chunk_columns + 8 * w + 2 * q;
                *reinterpret_cast<float2*>(target) =
                    make_float2(sums[b][c][w][0], sums[b][c][w][1]);
                *reinterpret_cast<float2*>(target + 8 * scratch_ld) =
                    make_float2(sums[b][c][w][2], sums[b][c][w][3]);
            }
        }
    }
    __syncthreads();
    const bool alone = p.tables.tiles[blockIdx.y].tiles_of_slot == 1;
    const auto cols = static_cast<int>(p.x.cols);
    const std::int64_t first_block =
        static_cast<std::int64_t>(blockIdx.y) * p.rank_blocks + rank_group * blocks;
    for (int b = 0; b < block_count; ++b) {
        const auto sum_of = [&](int rank, int column) {
            float sum = 0.0F;
#pragma unroll
            for (int w = 0; w < Shape::row_warps; ++w) {
                sum += scratch[(w * ranks + b * block_ranks + rank) * scratch_ld + column];
            }
            return sum;
        };
        const RankBlock& own = rank_blocks[b];
        if (alone) {
            put_gradients<with_ds, true, Shape::thread_count>(
                {own.gradient, own.rank_ld, own.column_ld, own.ranks, columns.end - columns.first,
                 own.begins},
                with_ds ? 1.0F : dropout_scale(own.dropout), sum_of);
            continue;
        }
        float* first = p.gradients + (first_block + b) * block_ranks * cols +
                       columns.first * (with_ds ? block_ranks : 1);
        put_gradients<with_ds, false, Shape::thread_count>(
            {first, with_ds ? 1 : cols, with_ds ? block_ranks : 1, block_ranks,
             columns.end - columns.first, true},
            1.0F, sum_of);
    }
}

__device__ __forceinline__ int ranks_of(const SweepParams& p, int slot, int target) {
    return p.tables.slots[target * p.tables.slot_count + slot].rank;
}

template <int blocks, bool with_dropout, int stages>
__global__ void __launch_bounds__(threads, blocks_of_processor) sweep_kernel(SweepParams p) {
    using Shape = Split<blocks, with_dropout, stages>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[blocks];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const ColumnBlock columns = find_columns<false>(p, column_block_of_block(p));
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] = find_rank_block<false>(
            p, tile, columns, rank_group_of_block(p) * blocks + static_cast<int>(threadIdx.x));
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].ranks > 0 ? 1 : 0;
    if (block_count == 0) return;

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int warp_column =
        columns.first + warp % Shape::column_warps * Shape::chunks * chunk_columns;
    const int first_row = tile.begin + warp / Shape::column_warps * block_rows;
    Feeder<Shape, blocks> feeder;
    feeder.staging = staging + warp * Shape::warp_pieces;
    feeder.x = static_cast<const Bf16*>(p.x.data) + first_row * p.x.ld + warp_column;
    feeder.ld = p.x.ld;
    feeder.columns = columns.end - warp_column;
    feeder.first_row = first_row;
    feeder.end_row = tile.end;
    feeder.rank_blocks = rank_blocks;
    constexpr int rows_apart = Shape::row_warps * block_rows;
    const int row_blocks = max(0, (tile.end - first_row + rows_apart - 1) / rows_apart);
    const int steps = row_blocks * Shape::lines;
#pragma unroll
    for (int i = 0; i < Shape::stages; ++i) {
        if (i < steps) feeder.fetch(i);
        commit_pieces();
    }

    const std::uint32_t step_of_rows = with_dropout ? p.tables.segments[tile.segment].step : 0;
    float sums[blocks][Shape::chunks][4][4] = {};
    for (int row_block = 0; row_block < row_blocks; ++row_block) {
        const int row = first_row + row_block * rows_apart;
        std::uint32_t s[blocks][block_rows / 16][4] = {};
        uint4 dropout_rows[blocks][row_pieces];
        if (with_dropout) {
            find_dropout_rows<blocks>(p, rank_blocks, row + g, tile.end, dropout_rows);
        }
#pragma unroll
        for (int line = 0; line < Shape::lines; ++line) {
            const int step = row_block * Shape::lines + line;
            wait_for_pieces<Shape::stages - 1>();
            __syncwarp();
#pragma unroll
            for (int b = 0; line == 0 && b < blocks; ++b) {
                if (rank_blocks[b].ranks == 0) continue;
#pragma unroll
                for (int m = 0; m < block_rows / 16; ++m) {
                    load_transposed_block(feeder.s_of(row_block, b) + m * 32, s[b][m]);
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int chunk = line * 2 + half;
                const uint4* staged = feeder.stage_of(step);
                Columns fragments;
                if constexpr (!with_dropout) {
                    load_columns(
                        [&](int r, int piece) {
                            return staged + staged_piece(r, half * 4 + piece);
                        },
                        fragments);
                }
#pragma unroll
                for (int b = 0; b < blocks; ++b) {
                    if constexpr (with_dropout) {
                        mask_rows(rank_blocks[b], step_of_rows,
                                  p.tables.first_dropout_block +
                                      (warp_column + chunk * chunk_columns) / 8 + q,
                                  dropout_rows[b], staged, half, feeder.masked());
                        load_columns(
                            [&](int r, int piece) {
                                return feeder.masked() + masked_piece(r, piece);
                            },
                            fragments);
                    }
                    add_outer(s[b], fragments, sums[b][chunk]);
                }
            }
            __syncwarp();
            if (step + Shape::stages < steps) feeder.fetch(step + Shape::stages);
            commit_pieces();
        }
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<Shape, blocks, false>(p, rank_blocks, columns, rank_group_of_block(p),
                                          block_count, sums, reinterpret_cast<float*>(staging));
}

template <int blocks, bool with_dropout, int stages>
cudaError_t launch_stages(cudaStream_t stream, SweepParams p, int shared_limit) {
    constexpr int shared = Split<blocks, with_dropout, stages>::bytes;
    const auto kernel = sweep_kernel<blocks, with_dropout, stages>;
    static const cudaError_t raised =
        allow_shared(reinterpret_cast<const void*>(kernel), shared, shared_limit);
    if (raised != cudaSuccess) return raised;
    p.rank_groups = pieces(p.rank_blocks, blocks);
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, block_columns) * p.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_early(stream, kernel, grid, threads, shared, p);
}

template <int blocks, bool with_dropout, int stages>
constexpr int shared_of_block = Split<blocks, with_dropout, stages>::bytes +
                                blocks* static_cast<int>(sizeof(RankBlock));

/// Four stages, or three, which dropout leaves room for, where a multiprocessor cannot have two
/// blocks of four: with less than the most shared memory, unless a block has one rank block alone.
template <int blocks, bool with_dropout>
cudaError_t launch_sweep(cudaStream_t stream, const SweepParams& p, int shared_limit) {
    constexpr bool always_small = with_dropout;
    constexpr bool always_large = !always_small && blocks == 1;
    static_assert(shared_of_block < blocks, with_dropout,
                  always_large ? 4 : 3 > <= least_shared_bytes);
    static_assert(shared_of_block < blocks, with_dropout,
                  always_small ? 3 : 4 > <= most_shared_bytes);
    if constexpr (!always_large) {
        if (always_small || shared_limit < most_shared_bytes) {
            return launch_stages<blocks, with_dropout, 3>(stream, p, shared_limit);
        }
    }
    if constexpr (!always_small) {
        return launch_stages<blocks, with_dropout, 4>(stream, p, shared_limit);
    }
}

}  // namespace loratrain::kernels::sweep

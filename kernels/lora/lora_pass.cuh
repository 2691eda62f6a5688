#pragma once

#include "kernels/launch.cuh"
#include "lora_pass_tile.cuh"

/// The pass for dA: partial sums of the gradients for each tile of rows, which the caller adds up;
/// and the destinations of gradients of both factors.
namespace loratrain::kernels::pass {

/// blockIdx.x counts groups of `blocks` rank blocks first, then columns, so that blocks which read
/// the same rows and columns run at the same time and share them in the L2.
__device__ __forceinline__ int rank_group_of_block(const PassParams& p) {
    return static_cast<int>(blockIdx.x) % p.rank_groups;
}
__device__ __forceinline__ int column_block_of_block(const PassParams& p) {
    return static_cast<int>(blockIdx.x) / p.rank_groups;
}

/// Rank block `index` of a tile's slot, counted in the targets of `columns`.
template <bool with_ds>
__device__ __forceinline__ RankBlock find_rank_block(const PassParams& p, const LoraTile& tile,
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

/// Destination of the gradients of 16 ranks and block_columns columns.
struct GradientBlock {
    float* first;  ///< of the first rank and column
    int rank_ld;   ///< from one rank to the next
    int column_ld;
    int ranks;
    int columns;
    bool begins;  ///< overwritten, not accumulated
};

/// The element of a GradientBlock's 16 ranks and 256 columns that a thread writes in turn `turn`;
/// neighbouring threads write neighbouring elements.
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

/// Writes sums, or adds them times their column's scale. `scale_of(column)`, `sum_of(rank,
/// column)`.
template <bool with_ds, bool add, int thread_count, class ScaleOf, class SumOf>
__device__ __forceinline__ void put_gradients(const GradientBlock& block, const ScaleOf& scale_of,
                                              const SumOf& sum_of) {
    constexpr int at_once = 8;
    constexpr int turns = block_ranks * block_columns / thread_count;
    static_assert(turns % at_once == 0);
#pragma unroll 1
    for (int first = 0; first < turns; first += at_once) {
        float before[at_once];
        float scales[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            const int rank = rank_of_turn<with_ds, thread_count>(first + j);
            const int column = column_of_turn<with_ds, thread_count>(first + j);
            const bool inside = rank < block.ranks && column < block.columns;
            before[j] = 0.0F;
            scales[j] = add && inside ? scale_of(column) : 1.0F;
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
                add ? before[j] + sum * scales[j] : sum;
        }
    }
}

/// Writes a warp's sums of add_outer() to shared memory.
template <int chunks>
__device__ __forceinline__ void put_sums(const float (&sums)[chunks][4][4], float* scratch) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            float* target = scratch + g * scratch_ld + c * chunk_columns + 8 * w + 2 * q;
            *reinterpret_cast<float2*>(target) = make_float2(sums[c][w][0], sums[c][w][1]);
            *reinterpret_cast<float2*>(target + 8 * scratch_ld) =
                make_float2(sums[c][w][2], sums[c][w][3]);
        }
    }
}

/// The same where LineColumns were the factor: of a line, sums 2q and 2q + 1 of column j are of the
/// columns 8q + j and 8q + 32 + j.
template <int chunks>
__device__ __forceinline__ void put_line_sums(const float (&sums)[chunks][4][4], float* scratch) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float* target = scratch + (g + i / 2 * 8) * scratch_ld + c / 2 * line_columns +
                            i % 2 * chunk_columns + 8 * q + c % 2 * 4;
            *reinterpret_cast<float4*>(target) =
                make_float4(sums[c][0][i], sums[c][1][i], sums[c][2][i], sums[c][3][i]);
        }
    }
}

/// Adds the sums of the warps that share rows, and writes this tile's partial gradients, or adds
/// them to the slot's gradients if it has no other tile. weighted: columns are multiplied by
/// weight_of().
template <class Shape, int blocks, bool with_ds, bool by_lines = false, bool weighted = false>
__device__ __forceinline__ void write_gradients(const PassParams& p, const RankBlock* rank_blocks,
                                                const ColumnBlock& columns, int rank_group,
                                                int block_count,
                                                const float (&sums)[blocks][Shape::chunks][4][4],
                                                float* scratch) {
    constexpr int ranks = blocks * block_ranks;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int row_warp = warp / Shape::column_warps;
    const int left = warp % Shape::column_warps * Shape::chunks * chunk_columns;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
        float* target = scratch + (row_warp * ranks + b * block_ranks) * scratch_ld + left;
        if constexpr (by_lines) {
            put_line_sums<Shape::chunks>(sums[b], target);
        } else {
            put_sums<Shape::chunks>(sums[b], target);
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
            const float scale = with_ds ? 1.0F : dropout_scale(own.dropout);
            const auto scale_of = [&](int column) {
                return weighted ? scale * weight_of(p, columns.first + column) : scale;
            };
            put_gradients<with_ds, true, Shape::thread_count>(
                {own.gradient, own.rank_ld, own.column_ld, own.ranks, columns.end - columns.first,
                 own.begins},
                scale_of, sum_of);
            continue;
        }
        float* first = p.gradients + (first_block + b) * block_ranks * cols +
                       columns.first * (with_ds ? block_ranks : 1);
        put_gradients<with_ds, false, Shape::thread_count>(
            {first, with_ds ? 1 : cols, with_ds ? block_ranks : 1, block_ranks,
             columns.end - columns.first, true},
            [](int) { return 1.0F; }, sum_of);
    }
}

/// dropout_column of a lane's 8 columns of each rank block's lines.
template <int blocks, int lines>
using DropoutColumns = uint4[blocks][lines];

/// sums += Sᵀ drop(X) for line `line` of a warp, staged at `staged`. Neighbouring rank blocks of
/// one target share the masks.
template <class Shape, int blocks>
__device__ __forceinline__ void add_kept_line(const Feeder<Shape, blocks>& feeder,
                                              const uint4* staged, int line, int block_count,
                                              const DropoutKeys* keys,
                                              const DropoutColumns<blocks, Shape::lines>& columns,
                                              const std::uint32_t (&s)[blocks][block_rows / 16][4],
                                              float (&sums)[blocks][Shape::chunks][4][4]) {
#pragma unroll
    for (int m = 0; m < block_rows / 16; ++m) {
        uint4 x[4];
        load_tokens(staged, m * 16, x);
        LineColumns fragments;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            if (b >= block_count) break;
            const RankBlock* block = feeder.rank_blocks + b;
            if (b == 0 || block[0].target != block[-1].target) {
                keep_columns(*block, keys[b], feeder.dropout_rows_of(b) + m * 16, columns[b][line],
                             x, fragments);
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                multiply_add(sums[b][line * 2 + j / 4][j % 4], s[b][m][0], s[b][m][1], s[b][m][2],
                             s[b][m][3], fragments[j][0], fragments[j][1]);
            }
        }
    }
}

template <int blocks, bool with_dropout, int stages>
__global__ void __launch_bounds__(threads, blocks_of_processor) pass_kernel(PassParams p) {
    using Shape = Split<blocks, with_dropout, stages>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[blocks];
    __shared__ DropoutKeys keys[with_dropout ? blocks : 1];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const ColumnBlock columns = find_columns<false>(p, column_block_of_block(p));
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] = find_rank_block<false>(
            p, tile, columns, rank_group_of_block(p) * blocks + static_cast<int>(threadIdx.x));
        if (with_dropout) keys[threadIdx.x] = dropout_keys(rank_blocks[threadIdx.x].key);
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].ranks > 0 ? 1 : 0;
    if (block_count == 0) return;

    const int warp = static_cast<int>(threadIdx.x) / 32;
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

    DropoutColumns<blocks, Shape::lines> dropout_columns;
    RowId id{};
    if constexpr (with_dropout) {
        const std::uint32_t step = p.tables.segments[tile.segment].step;
        const int eight = p.tables.first_dropout_block + warp_column / 8 + piece_of_lane();
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
#pragma unroll
            for (int line = 0; line < Shape::lines; ++line) {
                dropout_columns[b][line] =
                    dropout_column(rank_blocks[b].key, step,
                                   static_cast<std::uint32_t>(eight + line * line_pieces));
            }
        }
        id = load_row_id(p.tables, first_row, tile.end);
    }
    float sums[blocks][Shape::chunks][4][4] = {};
    for (int row_block = 0; row_block < row_blocks; ++row_block) {
        std::uint32_t s[blocks][block_rows / 16][4] = {};
        if constexpr (with_dropout) {
            stage_dropout_rows(feeder, id);
            id = load_row_id(p.tables, first_row + (row_block + 1) * rows_apart, tile.end);
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
            const uint4* staged = feeder.stage_of(step);
            if constexpr (with_dropout) {
                add_kept_line<Shape, blocks>(feeder, staged, line, block_count, keys,
                                             dropout_columns, s, sums);
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Columns fragments;
                    load_columns(
                        [&](int r, int piece) {
                            return staged + staged_piece(r, half * 4 + piece);
                        },
                        fragments);
#pragma unroll
                    for (int b = 0; b < blocks; ++b) {
                        add_outer(s[b], fragments, sums[b][line * 2 + half]);
                    }
                }
            }
            __syncwarp();
            if (step + Shape::stages < steps) feeder.fetch(step + Shape::stages);
            commit_pieces();
        }
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<Shape, blocks, false, with_dropout, true>(
        p, rank_blocks, columns, rank_group_of_block(p), block_count, sums,
        reinterpret_cast<float*>(staging));
}

template <int blocks, bool with_dropout, int stages>
cudaError_t launch_stages(cudaStream_t stream, PassParams p, int shared_limit) {
    constexpr int shared = Split<blocks, with_dropout, stages>::bytes;
    p.rank_groups = pieces(p.rank_blocks, blocks);
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, block_columns) * p.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_with_shared<pass_kernel<blocks, with_dropout, stages>, shared>(
        stream, shared_limit, grid, threads, p);
}

template <int blocks, bool with_dropout, int stages>
constexpr int shared_of_block = Split<blocks, with_dropout, stages>::bytes +
                                blocks* static_cast<int>(sizeof(RankBlock) +
                                                         (with_dropout ? sizeof(DropoutKeys) : 0));

/// Four stages; or three with dropout if a multiprocessor has no room for two blocks of four
/// stages, that is with less than the most shared memory, unless a block has only one rank block.
template <int blocks, bool with_dropout>
cudaError_t launch_pass(cudaStream_t stream, const PassParams& p, int shared_limit) {
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

}  // namespace loratrain::kernels::pass

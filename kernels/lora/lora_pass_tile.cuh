#pragma once

#include <algorithm>

#include "kernels/dropout.cuh"
#include "kernels/tensor_core.cuh"
#include "lora.h"

/// Pieces of the pass over the rows of X or dY that makes the gradients of the LoRA factors: the
/// parts of a block and of its warps, how rows reach them, and what dropout and transposing need.
namespace loratrain::kernels::pass {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr int blocks_of_processor = lora_pass_blocks_of_processor;
constexpr int block_columns = lora_pass_columns;
constexpr int block_rows = 32;  ///< tokens that a warp takes at once
constexpr int block_ranks = lora_pass_rank_multiple;
static_assert(warps * block_rows == lora_pass_row_multiple);
constexpr int row_pieces = block_rows / 8;
constexpr int stage_pieces = block_rows * line_pieces;  ///< of one warp, 16 bytes each
constexpr int s_pieces = block_rows * 2;                ///< of one warp and rank block
constexpr int scratch_ld = block_columns + 4;

/// Gradients of A without dropout use lora_wide_pass.cuh if some slot has more ranks than this in
/// all targets; otherwise lora_pass.cuh. (A number that no rank exceeds: always lora_pass.cuh.)
constexpr std::int32_t most_narrow_rank_sum = 3 * block_ranks;

/// 16 neighbouring ranks of one target.
struct RankBlock {
    int target;
    int first;        ///< first rank
    int ranks;        ///< 0 = no rank block
    float* gradient;  ///< of rank `first` in the block's first column; set by find_rank_block()
    int rank_ld;      ///< from one rank's gradient to the next rank's
    int column_ld;    ///< from one column's gradient to the next column's
    const std::uint16_t* s;  ///< row 0 of `first` in S
    std::int64_t s_ld;
    bool aligned;  ///< S can be read in pieces of 16 bytes
    bool begins;   ///< the gradient is overwritten, not accumulated
    std::uint32_t dropout;
    std::uint64_t key;
};

/// Rank block `index` of a slot, counted in the targets [first_target, end_target).
__device__ inline RankBlock find_block(const LoraTables& tables, const Matrix* s, std::int32_t slot,
                                       int index, int first_target, int end_target) {
    for (int target = first_target; target < end_target; ++target) {
        const LoraSlotEntry& entry = tables.slots[target * tables.slot_count + slot];
        const int blocks = (entry.rank + block_ranks - 1) / block_ranks;
        if (index < blocks) {
            const int first = index * block_ranks;
            const auto* start =
                static_cast<const std::uint16_t*>(s[target].data) + entry.column + first;
            const bool aligned =
                reinterpret_cast<std::uintptr_t>(start) % 16 == 0 && s[target].ld % 8 == 0;
            return {target,
                    first,
                    min(block_ranks, entry.rank - first),
                    nullptr,
                    0,
                    0,
                    start,
                    s[target].ld,
                    aligned,
                    entry.begins != 0,
                    entry.dropout,
                    entry.dropout_key};
        }
        index -= blocks;
    }
    return {0, 0, 0, nullptr, 0, 0, nullptr, 0, false, false, 0, 0};
}

/// Parameters of a pass over X or dY:
///   with_ds = false (grad_a)  partial sums over a tile's rows of Sᵀ drop(X)
///   with_ds = true (grad_b)   partial sums over a tile's rows of Sᵀ dY, and over this block's
///   columns of
///                             dY B
struct PassParams {
    Matrix x;
    Matrix s[max_lora_targets];
    /// with_ds: one past the last column of x of each target; otherwise all targets read every
    /// column.
    std::int64_t ends[max_lora_targets];
    LoraTables tables;
    int rank_blocks;   ///< the most of a slot (with_ds: of a slot in a target)
    int part_columns;  ///< columns whose dS one thread block adds up; a target's last part may be
                       ///< shorter
    int rank_groups;   ///< of so many rank blocks as a thread block has, that a launch goes through
    const Bf16* weight;  ///< for grad_a: LoraGradAParams::weight, or null
    float weight_offset;
    float* gradients;  ///< grad_a: [tiles, rank_blocks, 16, cols], grad_b: [..., cols, 16]
    float* ds;         ///< [rank_blocks, parts of all targets' columns, T, 16]
};

/// Factor of the sums for grad_a in a column.
__device__ __forceinline__ float weight_of(const PassParams& p, std::int64_t column) {
    return p.weight == nullptr ? 1.0F : to_float(p.weight[column]) + p.weight_offset;
}

/// Columns [begin, end) of x that belong to a target.
struct TargetColumns {
    std::int64_t begin;
    std::int64_t end;
    __host__ __device__ int blocks() const {
        return static_cast<int>((end - begin + block_columns - 1) / block_columns);
    }
};

__host__ __device__ inline TargetColumns columns_of(const PassParams& p, int target) {
    return {target == 0 ? 0 : p.ends[target - 1], p.ends[target]};
}

__host__ __device__ inline int column_blocks_before(const PassParams& p, int target) {
    int blocks = 0;
    for (int before = 0; before < target; ++before) blocks += columns_of(p, before).blocks();
    return blocks;
}

/// The columns of a thread block: at most block_columns of `target` (-1 = of all targets).
struct ColumnBlock {
    int target;
    int first;   ///< column of x
    int end;     ///< one past the last column that may be read
    int factor;  ///< `first` counted from the target's first column
};

template <bool with_ds>
__device__ __forceinline__ ColumnBlock find_columns(const PassParams& p, int index) {
    if constexpr (!with_ds) {
        const int first = index * block_columns;
        return {-1, first, static_cast<int>(p.x.cols), first};
    }
    int target = 0;
    while (index >= columns_of(p, target).blocks()) index -= columns_of(p, target++).blocks();
    const TargetColumns columns = columns_of(p, target);
    const int factor = index * block_columns;
    return {target, static_cast<int>(columns.begin) + factor, static_cast<int>(columns.end),
            factor};
}

/// How warps share rows and columns. The sums of `blocks` rank blocks are in registers. `stages`:
/// number of lines, and of row blocks of S, that are under way or in use. With dropout each warp
/// has dropout_row of its rows.
template <int blocks, bool with_dropout, int stage_count>
struct Split {
    static constexpr int thread_count = threads;
    static constexpr int stages = stage_count;
    static constexpr int column_warps = blocks == 1 ? 2 : 4;
    static constexpr int row_warps = warps / column_warps;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int lines = chunks / 2;
    static constexpr int s_start = stages * stage_pieces;
    static constexpr int dropout_start = s_start + stages * blocks * s_pieces;
    static constexpr int warp_pieces = dropout_start + (with_dropout ? blocks * block_rows : 0);
    static constexpr int scratch_bytes = row_warps * blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes = std::max(warps * warp_pieces * 16, scratch_bytes);
};

/// Copies 8 ranks of one row of S to shared memory; 0 outside the block and from `end` on.
__device__ __forceinline__ void stage_s_piece(uint4* staged, const RankBlock& block, int row,
                                              int end, int half) {
    const int ranks = row < end ? min(8, max(0, block.ranks - half * 8)) : 0;
    const auto* source = ranks == 0 ? block.s : block.s + row * block.s_ld + half * 8;
    if (block.aligned) {
        copy_piece_async(staged, source, ranks * 2);
        return;
    }
    auto* target = reinterpret_cast<std::uint16_t*>(staged);
#pragma unroll 1
    for (int i = 0; i < 8; ++i) target[i] = i < ranks ? source[i] : std::uint16_t{0};
}

/// Copies rows of X, a line of 64 columns per step, and of S to a warp's own stages. Step i is line
/// i % lines of row block i / lines.
template <class Shape, int blocks>
struct Feeder {
    uint4* staging;  ///< of this warp
    const Bf16* x;   ///< first row and column of this warp
    std::int64_t ld;
    int columns;  ///< from this warp's first to the last of X
    int first_row;
    int end_row;
    const RankBlock* rank_blocks;

    __device__ __forceinline__ uint4* stage_of(int step) const {
        return staging + step % Shape::stages * stage_pieces;
    }
    __device__ __forceinline__ uint4* s_of(int row_block, int block) const {
        return staging + Shape::s_start + (row_block % Shape::stages * blocks + block) * s_pieces;
    }
    /// dropout_row for rank block `block` of the rows of the row block in use.
    __device__ __forceinline__ uint4* dropout_rows_of(int block) const {
        return staging + Shape::dropout_start + block * block_rows;
    }
    __device__ __forceinline__ void fetch(int step) const {
        const int row_block = step / Shape::lines;
        const int first = step % Shape::lines * line_columns;
        const int down = row_block * Shape::row_warps * block_rows;
        copy_line_async<block_rows>(stage_of(step), x + down * ld + first, ld,
                                    end_row - first_row - down, columns - first);
        if (step % Shape::lines == 0) fetch_s(row_block, first_row + down);
    }
    __device__ __forceinline__ void fetch_s(int row_block, int row) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            if (rank_blocks[b].ranks == 0) break;
#pragma unroll
            for (int i = 0; i < s_pieces / 32; ++i) {
                const int piece = i * 32 + lane;
                stage_s_piece(s_of(row_block, b) + piece, rank_blocks[b], row + piece / 2, end_row,
                              piece % 2);
            }
        }
    }
};

/// The token of a row, for dropout.
struct RowId {
    std::uint32_t sample;
    std::uint32_t position;
};

__device__ __forceinline__ RowId row_id(const LoraTables& tables, int row) {
    return {static_cast<std::uint32_t>(tables.sample_ids[row]),
            static_cast<std::uint32_t>(tables.positions[row])};
}

/// The token of a lane's own row in the row block at `first_row`.
__device__ __forceinline__ RowId load_row_id(const LoraTables& tables, int first_row, int end_row) {
    return row_id(tables, min(first_row + static_cast<int>(threadIdx.x) % 32, end_row - 1));
}

__device__ __forceinline__ uint4 dropout_of_row(std::uint64_t key, const RowId& id) {
    return dropout_row(key, id.sample, id.position);
}

/// dropout_column of columns 8 `eight` .. of X, for the rows of a tile.
__device__ __forceinline__ uint4 dropout_of_columns(const LoraTables& tables, const LoraTile& tile,
                                                    std::uint64_t key, std::uint32_t eight) {
    return dropout_column(key, tables.segments[tile.segment].step,
                          static_cast<std::uint32_t>(tables.first_dropout_block) + eight);
}

/// Place of four ranks of a row among the row's pieces, such that no two of 16 lanes that write
/// halves of them meet in a bank.
__device__ __forceinline__ int place_of_four(int row, int four) {
    return four ^ row / 2 % 2 * 2;
}

__device__ __forceinline__ void add_to(float4& sum, const float4& term) {
    sum.x += term.x;
    sum.y += term.y;
    sum.z += term.z;
    sum.w += term.w;
}

/// Stages dropout_row of a warp's 32 rows for each rank block.
template <class Shape, int blocks>
__device__ __forceinline__ void stage_dropout_rows(const Feeder<Shape, blocks>& feeder,
                                                   const RowId& id) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
        feeder.dropout_rows_of(b)[threadIdx.x % 32] = dropout_of_row(feeder.rank_blocks[b].key, id);
    }
}

/// B fragments of a chunk of X: [row block of 16][columns 8w ..][rows 0-7 and 8-15].
using Columns = std::uint32_t[block_rows / 16][4][2];

/// `piece_at(row, piece)`: address of the 16 bytes of columns 8 piece .. 8 piece + 7.
template <class PieceAt>
__device__ __forceinline__ void load_columns(const PieceAt& piece_at, Columns& columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < block_rows / 16; ++m) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            std::uint32_t blocks[4];
            load_transposed(piece_at(m * 16 + lane % 16, pair * 2 + lane / 16), blocks);
            columns[m][2 * pair][0] = blocks[0];
            columns[m][2 * pair][1] = blocks[1];
            columns[m][2 * pair + 1][0] = blocks[2];
            columns[m][2 * pair + 1][1] = blocks[3];
        }
    }
}

/// With dropout, lane (g, q) reads this piece of 8 columns of the tokens 2q, 2q + 1, 2q + 8 and 2q
/// + 9 of every 16 rows of a line. These are the values of its B fragments, so that masked values
/// stay in registers. No two of 8 lanes (two g) meet in a bank.
__device__ __forceinline__ int piece_of_lane() {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    return g % 2 * 4 + g / 2;
}
__device__ __forceinline__ int token_of_lane(int i) {
    return static_cast<int>(threadIdx.x) % 4 * 2 + i % 2 + i / 2 * 8;
}

/// B fragments of 16 rows of a line: [column j of a lane's 8][tokens 2q, 2q + 1, 2q + 8, 2q + 9].
using LineColumns = std::uint32_t[8][2];

/// A lane's pieces of 4 tokens; `rows`: first of the 16 rows in a staged line, 0 or 16.
__device__ __forceinline__ void load_tokens(const uint4* staged, int rows, uint4 (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // staged_piece repeats every 8 rows
        x[i] = staged[staged_piece(token_of_lane(i % 2), piece_of_lane()) +
                      (rows + i / 2 * 8) * line_pieces];
    }
}

/// Fragments of two tokens, tokens 8 and on with half 1: neighbours of one column in a word.
__device__ __forceinline__ void pair_tokens(const uint4& first, const uint4& second, int half,
                                            LineColumns& fragments) {
    const std::uint32_t words[2][4] = {{first.x, first.y, first.z, first.w},
                                       {second.x, second.y, second.z, second.w}};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        fragments[2 * w][half] = __byte_perm(words[0][w], words[1][w], 0x5410);
        fragments[2 * w + 1][half] = __byte_perm(words[0][w], words[1][w], 0x7632);
    }
}

/// Masks x by dropout. `rows`: dropout_row of the first of the 16 tokens; `columns`: dropout_column
/// of the lane's 8 columns.
__device__ __forceinline__ void keep_columns(const RankBlock& block, const DropoutKeys& keys,
                                             const uint4* rows, const uint4& columns,
                                             const uint4 (&x)[4], LineColumns& fragments) {
    const std::uint32_t threshold = block.dropout;
    if (threshold == 0) {
        asm volatile("");  // else the compiler joins both branches' work behind them
        pair_tokens(x[0], x[1], 0, fragments);
        pair_tokens(x[2], x[3], 1, fragments);
        return;
    }
    uint4 kept[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        kept[i] = masked(x[i], dropout_bits(keys, rows[token_of_lane(i)], columns), threshold);
    }
    pair_tokens(kept[0], kept[1], 0, fragments);
    pair_tokens(kept[2], kept[3], 1, fragments);
}

/// sums [16 ranks, 32 columns] += Sᵀ X.
__device__ __forceinline__ void add_outer(const std::uint32_t (&s)[block_rows / 16][4],
                                          const Columns& columns, float (&sums)[4][4]) {
#pragma unroll
    for (int m = 0; m < block_rows / 16; ++m) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            multiply_add(sums[w], s[m][0], s[m][1], s[m][2], s[m][3], columns[m][w][0],
                         columns[m][w][1]);
        }
    }
}

}  // namespace loratrain::kernels::pass

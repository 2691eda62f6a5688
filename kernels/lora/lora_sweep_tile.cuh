#pragma once

#include <algorithm>

#include "kernels/dropout.cuh"
#include "kernels/tensor_core.cuh"
#include "lora.h"

/// Pieces of the sweep over the rows of X or dY that makes the gradients of the LoRA factors: what
/// a block and its warps own, how rows reach them, and what dropout and transposing need.
namespace loratrain::kernels::sweep {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr int blocks_of_processor = lora_sweep_blocks_of_processor;
constexpr int block_columns = lora_sweep_columns;
constexpr int block_rows = 32;  ///< tokens that a warp takes at once
constexpr int block_ranks = lora_sweep_rank_multiple;
static_assert(warps * block_rows == lora_sweep_row_multiple);
constexpr int row_pieces = block_rows / 8;
constexpr int stage_pieces = block_rows * line_pieces;  ///< of one warp, 16 bytes each
constexpr int chunk_pieces = block_rows * 4;            ///< of a chunk after dropout
constexpr int s_pieces = block_rows * 2;                ///< of one warp and rank block
constexpr int scratch_ld = block_columns + 4;

/// Gradients of A without dropout, where some slot has more ranks in all targets, go by
/// lora_wide_sweep.cuh; with a number that no rank exceeds all go by lora_sweep.cuh.
constexpr std::int32_t most_narrow_rank_sum = 3 * block_ranks;

inline int pieces(std::int64_t count, std::int64_t size) {
    return static_cast<int>((count + size - 1) / size);
}

/// 16 neighbouring ranks of one target.
struct RankBlock {
    int target;
    int first;               ///< first rank
    int ranks;               ///< 0: none
    float* gradient;         ///< of `first`, in the block's first column; find_rank_block
    int rank_ld;             ///< from one rank's gradient to the next one's
    int column_ld;           ///< likewise of columns
    const std::uint16_t* s;  ///< row 0 of `first` in S
    std::int64_t s_ld;
    bool aligned;  ///< S can be read in pieces of 16 bytes
    bool begins;   ///< the gradient is written, not added to
    std::uint32_t dropout;
    std::uint64_t key;
};

/// The block of this index among those of a slot in the targets [first_target, end_target).
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

/// What both gradients of a linear need from one pass over X or dY:
///   with_ds = false (grad_a): partial sums over a tile's rows of Sᵀ drop(X);
///   with_ds = true (grad_b): the same of Sᵀ dY, and of dY B over this block's columns.
struct SweepParams {
    Matrix x;
    Matrix s[max_lora_targets];
    /// with_ds: the column of x behind each target's last; all targets read every column else.
    std::int64_t ends[max_lora_targets];
    LoraTables tables;
    int rank_blocks;   ///< of every slot (with_ds: and target), at most
    int part_columns;  ///< whose dS one thread block adds up; of each target the last fewer
    int rank_groups;   ///< of so many rank blocks as a thread block has, that a launch goes through
    float* gradients;  ///< grad_a: [tiles, rank_blocks, 16, cols], grad_b: [..., cols, 16]
    float* ds;         ///< [rank_blocks, parts of all targets' columns, T, 16]
};

/// Columns [begin, end) of x that belong to a target.
struct TargetColumns {
    std::int64_t begin;
    std::int64_t end;
    __host__ __device__ int blocks() const {
        return static_cast<int>((end - begin + block_columns - 1) / block_columns);
    }
};

__host__ __device__ inline TargetColumns columns_of(const SweepParams& p, int target) {
    return {target == 0 ? 0 : p.ends[target - 1], p.ends[target]};
}

__host__ __device__ inline int column_blocks_before(const SweepParams& p, int target) {
    int blocks = 0;
    for (int before = 0; before < target; ++before) blocks += columns_of(p, before).blocks();
    return blocks;
}

/// What a thread block sweeps: at most block_columns columns of `target`'s (-1: of all targets).
struct ColumnBlock {
    int target;
    int first;   ///< column of x
    int end;     ///< behind the last column that may be read
    int factor;  ///< `first` counted from the target's first column
};

template <bool with_ds>
__device__ __forceinline__ ColumnBlock find_columns(const SweepParams& p, int index) {
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

/// How the warps share rows and columns: `blocks` rank blocks need registers for their sums.
/// `stages`: lines that are under way or in use, also row blocks of S.
template <int blocks, bool with_dropout, int stage_count>
struct Split {
    static constexpr int thread_count = threads;
    static constexpr int stages = stage_count;
    static constexpr int column_warps = blocks == 1 ? 2 : 4;
    static constexpr int row_warps = warps / column_warps;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int lines = chunks / 2;
    static constexpr int s_start = stages * stage_pieces;
    static constexpr int masked_start = s_start + stages * blocks * s_pieces;
    static constexpr int warp_pieces = masked_start + (with_dropout ? chunk_pieces : 0);
    static constexpr int scratch_bytes = row_warps * blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes = std::max(warps * warp_pieces * 16, scratch_bytes);
};

/// 8 ranks of one row of S to shared memory, 0 outside the block and from `end` on.
__device__ __forceinline__ void stage_s_piece(uint4* staged, const RankBlock& block, int row,
                                              int end, int half) {
    const int ranks = row < end ? min(8, max(0, block.ranks - half * 8)) : 0;
    const auto* source = ranks == 0 ? block.s : block.s + row * block.s_ld + half * 8;
    if (block.aligned) {
        copy_piece_async(staged, source, ranks * 2);
        return;
    }
    auto* target = reinterpret_cast<std::uint16_t*>(staged);
    for (int i = 0; i < 8; ++i) target[i] = i < ranks ? source[i] : std::uint16_t{0};
}

/// Brings rows of X, a line of 64 columns per step, and of S to a warp's own stage; step i is line
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
    __device__ __forceinline__ uint4* masked() const { return staging + Shape::masked_start; }
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

/// What dropout needs of a lane's rows first_row, first_row + 8, ...
template <int blocks>
__device__ __forceinline__ void find_dropout_rows(const SweepParams& p,
                                                  const RankBlock (&rank_blocks)[blocks],
                                                  int first_row, int end_row,
                                                  uint4 (&rows)[blocks][row_pieces]) {
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        const int row = min(first_row + i * 8, end_row - 1);
        const auto sample = static_cast<std::uint32_t>(p.tables.sample_ids[row]);
        const auto position = static_cast<std::uint32_t>(p.tables.positions[row]);
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            rows[b][i] = dropout_row(rank_blocks[b].key, sample, position);
        }
    }
}

/// A lane's pieces of a chunk, half `half` of a staged line: rows g, g + 8, ..., columns 8q ...
__device__ __forceinline__ void load_rows(const uint4* staged, int half, uint4 (&x)[row_pieces]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) x[i] = staged[staged_piece(i * 8 + g, half * 4 + q)];
}

/// Where a chunk of 4 pieces per row lies after dropout, permuted like staged_piece.
__device__ __forceinline__ int masked_piece(int row, int piece) {
    return row * 4 + (piece ^ row / 2 % 4);
}

/// Writes what dropout keeps of a chunk for all lanes to read; `eight`: this lane's 8 columns.
__device__ __forceinline__ void mask_rows(const RankBlock& block, std::uint32_t step, int eight,
                                          const uint4 (&rows)[row_pieces], const uint4* staged,
                                          int half, uint4* kept) {
    const uint4 columns = dropout_column(block.key, step, static_cast<std::uint32_t>(eight));
    uint4 x[row_pieces];
    load_rows(staged, half, x);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        if (block.dropout > 0) {
            x[i] = masked(x[i], dropout_bits(block.key, rows[i], columns), block.dropout);
        }
        kept[masked_piece(i * 8 + static_cast<int>(threadIdx.x) % 32 / 4,
                          static_cast<int>(threadIdx.x) % 4)] = x[i];
    }
    __syncwarp();
}

/// B fragments of a chunk of X: [row block of 16][columns 8w ..][rows 0-7 and 8-15].
using Columns = std::uint32_t[block_rows / 16][4][2];

/// `piece_at(row, piece)`: where the 16 bytes of columns 8 piece .. 8 piece + 7 are.
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

}  // namespace loratrain::kernels::sweep

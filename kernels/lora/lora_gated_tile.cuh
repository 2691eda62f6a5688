#pragma once

#include "kernels/activations.h"
#include "lora_expand_tile.cuh"
#include "lora_wide_pass.cuh"

/// Layout of the pass around an MLP's activation (lora_gated_backward.cu): shared memory of a
/// block, a lane's part of it, and how rows, factors and masks get there.
namespace loratrain::kernels::pass {

constexpr int swept = 3;  ///< dgate, dup, h, in the places of gate, up, dh

/// with_down: LoRA of down has yet to be added to dh, or h has dropout.
template <bool with_down>
struct Gated {
    static constexpr int thread_count = wide_threads;
    static constexpr int column_warps = wide_warps;
    static constexpr int row_warps = 1;
    static constexpr int chunks = 1;
    static constexpr int lines = block_columns / line_columns;
    static constexpr int matrix = lines * stage_pieces;
    static constexpr int s_start = swept * matrix;
    static constexpr int rows_start = s_start + swept * s_pieces;
    static constexpr int stage = rows_start + (with_down ? block_rows : 0);
    static constexpr int stages = 2;
    static constexpr int factor_start = stages * stage;
    static constexpr int bytes =
        factor_start * 16 + (with_down ? expand::Staging::factor_words * 4 : 0);
    static_assert(column_warps * chunk_columns == block_columns && lines * 2 == wide_warps);
    static_assert(swept * s_pieces + block_rows <= thread_count);
    static_assert(block_ranks * scratch_ld * 4 <= bytes);
    static_assert(thread_count == expand::threads && block_ranks == expand::block_ranks);
};
constexpr int gated_matrix = Gated<false>::matrix;
constexpr int eight_rows = 8 * line_pieces;  ///< of a line, after which staged_piece repeats

/// `b`: gradients of gate and up, whose x is dgate | dup; `a`: of down, whose x is h, which is not
/// in memory. `adds_down`: LoRA of down has yet to be added to dh. gate and up have equal row
/// lengths, and no matrix of a step's rows has more than 2^32 elements.
struct GatedPass {
    Matrix gate, up, dh;
    Matrix dgate, dup;
    PassParams b;
    PassParams a;
    bool adds_down;
};

/// Place of four ranks of a row of dS; `piece` as in staged_piece.
__device__ __forceinline__ int ds_piece(int row, int piece) {
    return staged_piece(row, place_of_four(row, piece));
}

/// Place of 8 ranks of a row of S, such that no two of 8 rows meet in a bank.
__device__ __forceinline__ int staged_ranks(int row, int half) {
    return row * 2 + (half ^ row / 4 % 2);
}

/// threadIdx.x, read at each use, so that values derived from it take no registers of the
/// surrounding loop, which has none left.
__device__ __forceinline__ int fresh_thread() {
    auto thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    return thread;
}

/// A thread's columns: 8 of the warp's 32 of the block's 256.
struct GatedLane {
    int lane;
    int line;    ///< pieces before the warp's line
    int half;    ///< the warp's first piece of its line
    int column;  ///< the lane's first column in the block

    __device__ explicit GatedLane(int thread)
        : lane(thread % 32),
          line(thread / 64 * stage_pieces),
          half(thread / 32 % 2 * 4),
          column(thread / 32 * chunk_columns + thread % 4 * 8) {}
    __device__ int g() const { return lane / 4; }
    __device__ int q() const { return lane % 4; }
    /// The lane's place in row g of a staged matrix.
    __device__ int own() const { return line + staged_piece(g(), half + q()); }
    /// Address for ldmatrix of 16 rows and the warp's first 16 columns; of the other columns: ^ 2.
    __device__ int operand() const { return line + staged_piece(lane % 16, half + lane / 16); }
    /// Address for ldmatrix of 16 rows of S.
    __device__ int ranks() const { return staged_ranks(lane / 16 * 8 + lane % 8, lane / 8 % 2); }
    /// Address for ldmatrix of 16 rows of dS of down, not transposed.
    __device__ int rows_of_ranks() const { return staged_ranks(lane % 16, lane / 16); }
    /// Place of dS of row g and the ranks 2q and 2q + 1; of the ranks 8 further: ^ 2.
    __device__ int left() const { return line + ds_piece(g(), half + q() / 2); }
};

/// A block's columns of gate, up and h.
__device__ __forceinline__ ColumnBlock gated_columns(const GatedPass& p, int i) {
    const int first = static_cast<int>(blockIdx.x) * block_columns;
    const auto count = static_cast<int>(p.gate.cols);
    return i == 0   ? ColumnBlock{0, first, count, first}
           : i == 1 ? ColumnBlock{1, count + first, 2 * count, first}
                    : ColumnBlock{-1, first, count, first};
}

/// The rank blocks of gate, up and down of a tile's slot.
__device__ __forceinline__ void find_gated_blocks(const GatedPass& p, const LoraTile& tile,
                                                  RankBlock (&rank_blocks)[swept]) {
    if (threadIdx.x < swept) {
        const auto i = static_cast<int>(threadIdx.x);
        const ColumnBlock columns = gated_columns(p, i);
        RankBlock block{};
        block.s = static_cast<const std::uint16_t*>(p.gate.data);
        block.aligned = true;
        if (tile.segment >= 0) {
            const RankBlock found = i < 2 ? find_rank_block<true>(p.b, tile, columns, 0)
                                          : find_rank_block<false>(p.a, tile, columns, 0);
            if (found.ranks > 0) block = found;
        }
        rank_blocks[i] = block;
    }
    __syncthreads();
}

/// S of gate and up, dS of down, and for masks of h the rows' part of dropout's counters.
template <bool with_down>
__device__ __forceinline__ void fetch_factors(const GatedPass& p, int first, int end,
                                              const RankBlock (&rank_blocks)[swept], int piece,
                                              uint4* stage) {
    using Shape = Gated<with_down>;
    if (piece < swept * s_pieces) {
        const int row = piece % s_pieces / 2;
        stage_s_piece(
            stage + Shape::s_start + piece / s_pieces * s_pieces + staged_ranks(row, piece % 2),
            rank_blocks[piece / s_pieces], first + row, end, piece % 2);
    } else if (with_down && piece < swept * s_pieces + block_rows) {
        const int own = piece - swept * s_pieces;
        const int row = min(first + own, end - 1);
        stage[Shape::rows_start + own] =
            dropout_of_row(rank_blocks[2].key, row_id(p.a.tables, row));
    }
}

/// Copies rows `first` to `end` of gate, up and dh, and the matrices that multiply them. Two warps
/// share a line; each has every other four rows.
template <bool with_down>
__device__ __forceinline__ void fetch_gated(const GatedPass& p, int first, int end,
                                            const RankBlock (&rank_blocks)[swept], uint4* stage) {
    const int thread = fresh_thread();
    const int line = thread / 64;
    const int piece = thread % line_pieces;
    const int own = thread % 64 / line_pieces;
    const auto column = blockIdx.x * block_columns + line * line_columns + piece * 8U;
    const auto ld = static_cast<std::uint32_t>(p.gate.ld);
    const auto dh_ld = static_cast<std::uint32_t>(p.dh.ld);
    const auto row = static_cast<std::uint32_t>(first + own);
    const int left = column < p.gate.cols ? end - first - own : 0;
    uint4* to = stage + line * stage_pieces + staged_piece(own, piece);
    const Bf16* gate = static_cast<const Bf16*>(p.gate.data);
    const Bf16* up = static_cast<const Bf16*>(p.up.data);
    const Bf16* dh = static_cast<const Bf16*>(p.dh.data);
#pragma unroll
    for (int i = 0; i < block_rows / 8; ++i) {
        const int bytes = 8 * i < left ? 16 : 0;
        copy_piece_async(to + i * eight_rows, gate + ((row + 8 * i) * ld + column), bytes);
        copy_piece_async(to + i * eight_rows + gated_matrix, up + ((row + 8 * i) * ld + column),
                         bytes);
        copy_piece_async(to + i * eight_rows + 2 * gated_matrix,
                         dh + ((row + 8 * i) * dh_ld + column), bytes);
    }
    fetch_factors<with_down>(p, first, end, rank_blocks, thread, stage);
}

/// B of this warp's 32 columns as B fragments of two products, [8 ranks][words of 8 columns].
using Factor = std::uint32_t[2][4];

__device__ __forceinline__ void load_factor(const PassParams& p, const RankBlock& block,
                                            const LoraTile& tile, const ColumnBlock& columns,
                                            const GatedLane& lane, Factor& factor) {
    const LoraSlotEntry* slot = p.tables.slots + columns.target * p.tables.slot_count + tile.slot;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const int rank = n * 8 + lane.g();
        float b[wide] = {};
        if (rank < block.ranks && columns.first + lane.column < columns.end) {
            const float* from =
                slot->b + static_cast<std::int64_t>(columns.factor + lane.column) * slot->rank +
                rank;
#pragma unroll
            for (int j = 0; j < wide; ++j) b[j] = from[j * slot->rank];
        }
#pragma unroll
        for (int j = 0; j < wide / 2; ++j) factor[n][j] = pack_halves(b[2 * j], b[2 * j + 1]);
    }
}

/// A of down in the block's columns, as B fragments of the product with dS; zeros if nothing has to
/// be added to dh.
__device__ __forceinline__ void stage_down(const GatedPass& p, const LoraTile& tile,
                                           std::uint32_t* factor) {
    LoraSlotEntry slot{};
    if (p.adds_down && tile.segment >= 0) slot = p.a.tables.slots[tile.slot];
    expand::stage_a(p.gate.cols, slot, 0, 1, blockIdx.x * std::int64_t{block_columns}, factor);
}

/// dS A of 16 rows and the warp's columns: [word w][..] as expand::Sums. `ds`: at
/// GatedLane::rows_of_ranks.
__device__ __forceinline__ void multiply_down(const uint4* ds, const std::uint32_t* factor,
                                              float (&sums)[4][4]) {
    std::uint32_t rows[4];
    load_fragment(ds, rows);
    const std::uint32_t* words = factor + threadIdx.x / 32 * (4 * 2 * 32) + threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        multiply_add(sums[w], rows[0], rows[1], rows[2], rows[3], words[w * 64],
                     words[w * 64 + 32]);
    }
}

/// What masks of h and of dS A need beside the rows; in shared memory, since registers are short.
struct DownMask {
    DropoutKeys keys;
    uint4 columns[block_columns / 8];
    std::uint32_t dropout;
    float scale;  ///< 1/(1-p)

    /// Called by all threads.
    __device__ void find(const PassParams& p, const RankBlock& block, const LoraTile& tile) {
        if (threadIdx.x == 0) {
            keys = dropout_keys(block.key);
            dropout = block.ranks == 0 ? 0 : block.dropout;
            scale = dropout_scale(dropout);
        }
        if (threadIdx.x >= block_columns / 8 || tile.segment < 0) return;
        columns[threadIdx.x] = dropout_of_columns(p.tables, tile, block.key,
                                                  blockIdx.x * (block_columns / 8) + threadIdx.x);
    }
    /// Masks of two rows whose dropout_row are eight apart; `eight`: number of the 8 columns in the
    /// block.
    __device__ __forceinline__ void draw(const uint4* rows, int eight, uint4 (&bits)[2]) const {
        if (dropout == 0) return;
        bits[0] = dropout_bits(keys, rows[0], columns[eight]);
        bits[1] = dropout_bits(keys, rows[8], columns[eight]);
    }
    /// dh += what dropout keeps of dS A, for the rows g (half 0) or g + 8 of the sums.
    __device__ __forceinline__ void add(const float (&sums)[4][4], int half, const uint4& bits,
                                        float (&dh)[wide]) const {
        const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            add_kept(words[w], dropout, scale, sums[w][2 * half], sums[w][2 * half + 1], dh[2 * w],
                     dh[2 * w + 1]);
        }
    }
};

}  // namespace loratrain::kernels::pass

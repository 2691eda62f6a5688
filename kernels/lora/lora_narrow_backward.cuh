#pragma once

#include "lora_wide_backward.cuh"

/// dS and the gradients of B for slots of at most 16 ranks, with dY read from memory once. A block
/// takes a tile of at most 256 rows and goes through one part of the columns, line by line. Each
/// warp makes dS of 32 rows, and for 16 columns of the line the gradient's sums over half of the
/// rows.
namespace loratrain::kernels::pass {

template <int stage_count>
struct Narrow {
    static constexpr int stages = stage_count;
    static constexpr int column_warps = 4;
    static constexpr int row_halves = wide_warps / column_warps;
    static constexpr int warp_columns = line_columns / column_warps;
    static constexpr int half_blocks = ds_rows / row_halves / 16;  ///< of 16 rows
    static constexpr int stage = wide_warps * stage_pieces;
    static constexpr int factor_start = stages * stage;
    static constexpr int factor_pieces = WideDs<2>::factor_pieces;
    static constexpr int s_start = factor_start;  ///< S is in registers when B comes
    static_assert(ds_rows * 2 <= 2 * factor_pieces);
    static constexpr int halves_start = factor_start + 2 * factor_pieces;
    static constexpr int half_floats = line_columns * block_ranks;  ///< of a line's gradient
    static constexpr int bytes = halves_start * 16 + 2 * half_floats * 4;
    static_assert(row_halves == 2 && warp_columns == 16);
};
static_assert(ds_rows == lora_narrow_rows && line_columns == lora_line_columns);
static_assert(Narrow<2>::bytes <= least_shared_bytes);
static_assert(lora_pass_blocks_of_processor * Narrow<3>::bytes <= most_shared_bytes);

/// Number of rows that the block's threads copy to the place of S.
__device__ __forceinline__ void fetch_s(const RankBlock& block, const LoraTile& tile, uint4* s) {
#pragma unroll
    for (int i = 0; i < ds_rows * 2 / wide_threads; ++i) {
        const int piece = i * wide_threads + static_cast<int>(threadIdx.x);
        stage_s_piece(s + piece, block, tile.begin + piece / 2, tile.end, piece % 2);
    }
}

/// A line's gradient [16 ranks, 16 columns] of this warp, over its half of the rows.
template <class Shape>
__device__ __forceinline__ void sum_line(const uint4* stage,
                                         const std::uint32_t (&s)[Shape::half_blocks][4],
                                         float (&sums)[2][4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = warp % Shape::column_warps * 2 + lane / 16;
#pragma unroll
    for (int m = 0; m < Shape::half_blocks; ++m) {
        const int row = (warp / Shape::column_warps * Shape::half_blocks + m) * 16;
        std::uint32_t columns[4];
        load_transposed(stage + row / block_rows * stage_pieces +
                            staged_piece(row % block_rows + lane % 16, piece),
                        columns);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            multiply_add(sums[t], s[m][0], s[m][1], s[m][2], s[m][3], columns[2 * t],
                         columns[2 * t + 1]);
        }
    }
}

/// Calls f(rank, column of the line, i) for the sums [t][j], i = 4 t + j, that a thread has.
template <class Shape, class F>
__device__ __forceinline__ void for_own_sums(const F& f) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        f(g + i % 4 / 2 * 8,
          warp % Shape::column_warps * Shape::warp_columns + i / 4 * 8 + 2 * q + i % 2, i);
    }
}

/// Destination of the gradients of B for a part of the columns, [columns, ld].
struct GradientRows {
    float* first;
    int ld;
    int ranks;
    int columns;
    bool begins;  ///< overwritten, not accumulated
};

__device__ __forceinline__ GradientRows gradient_rows(const PassParams& p, const LoraTile& tile,
                                                      const RankBlock& block,
                                                      const ColumnBlock& columns) {
    const int count = columns.end - columns.first;
    if (tile.tiles_of_slot == 1) {
        return {block.gradient, block.column_ld, block.ranks, count, block.begins};
    }
    float* parts = p.gradients +
                   (static_cast<std::int64_t>(blockIdx.y) * p.x.cols + columns.first) * block_ranks;
    return {parts, block_ranks, block_ranks, count, true};
}

/// The warps of the first half of the rows add the other half's sums of a line, and write them.
template <class Shape>
__device__ __forceinline__ void put_line(const GradientRows& to, int line,
                                         const float (&sums)[2][4], const float* other_half) {
    for_own_sums<Shape>([&](int rank, int column, int i) {
        const float sum = sums[i / 4][i % 4] + other_half[column * block_ranks + rank];
        const int at = line * line_columns + column;
        if (rank >= to.ranks || at >= to.columns) return;
        float* target = to.first + static_cast<std::int64_t>(at) * to.ld + rank;
        *target = to.begins ? sum : *target + sum;
    });
}

template <class Shape, bool aligned>
__device__ __forceinline__ void narrow_backward(const PassParams& p, const LoraTile& tile,
                                                const LoraSlotEntry& slot,
                                                const ColumnBlock& columns, uint4* staging) {
    __shared__ RankBlock rank_blocks[1];
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool of_first_half = warp < Shape::column_warps;
    const int warp_row = tile.begin + warp * block_rows;
    const int column_count = columns.end - columns.first;
    const int lines = (column_count + line_columns - 1) / line_columns;
    const Bf16* x = static_cast<const Bf16*>(p.x.data) + warp_row * p.x.ld + columns.first;
    const auto stage_at = [&](int line) { return staging + line % Shape::stages * Shape::stage; };
    const auto fetch = [&](int line) {
        copy_line_async<block_rows>(stage_at(line) + warp * stage_pieces, x + line * line_columns,
                                    p.x.ld, tile.end - warp_row,
                                    column_count - line * line_columns);
    };
    fetch(0);
    find_rank_blocks<1, true>(p, tile, columns, 0, rank_blocks);
    fetch_s(rank_blocks[0], tile, staging + Shape::s_start);
    commit_pieces();
#pragma unroll
    for (int i = 1; i < Shape::stages - 1; ++i) {
        if (i < lines) fetch(i);
        commit_pieces();
    }
    FactorFeeder<2, aligned> factors(slot, columns, 0);
    FactorPart<2> part;
    factors.load(part);
    const GradientRows to = gradient_rows(p, tile, rank_blocks[0], columns);

    wait_for_pieces<Shape::stages - 2>();
    __syncthreads();
    std::uint32_t s[Shape::half_blocks][4];
#pragma unroll
    for (int m = 0; m < Shape::half_blocks; ++m) {
        const int row_block = warp / Shape::column_warps * Shape::half_blocks + m;
        load_transposed_block(staging + Shape::s_start + row_block * 32, s[m]);
    }
    __syncthreads();

    auto* halves = reinterpret_cast<float*>(staging + Shape::halves_start);
    const auto half_at = [&](int line) { return halves + line % 2 * Shape::half_floats; };
    float ds[block_rows / 16][4][4] = {};
    float sums[2][4] = {};
    for (int line = 0; line < lines; ++line) {
        const uint4* factor = next_line<Shape>(factors, part, line, lines, staging, fetch);
        if (line > 0 && of_first_half) put_line<Shape>(to, line - 1, sums, half_at(line - 1));
        add_line<2>(stage_at(line) + warp * stage_pieces, factor, 1, ds);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = 0.0F;
        sum_line<Shape>(stage_at(line), s, sums);
        if (of_first_half) continue;
        for_own_sums<Shape>([&](int rank, int column, int i) {
            half_at(line)[column * block_ranks + rank] = sums[i / 4][i % 4];
        });
    }
    wait_for_pieces<0>();
    __syncthreads();
    if (of_first_half) put_line<Shape>(to, lines - 1, sums, half_at(lines - 1));
    const int part_index = parts_before(p, columns.target) + columns.factor / p.part_columns;
    write_part<2>(p.ds + part_index * p.x.rows * block_ranks, 0, warp_row, tile.end, 1, ds);
}

/// blockIdx.x: the part of the columns; blockIdx.y: the tile.
template <int stages>
__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    narrow_backward_kernel(PassParams p) {
    extern __shared__ uint4 staging[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const ColumnBlock columns = find_part(p, static_cast<int>(blockIdx.x));
    const LoraSlotEntry& slot = p.tables.slots[columns.target * p.tables.slot_count + tile.slot];
    if (slot.rank == 0) return;
    if (has_aligned_b(slot)) {
        narrow_backward<Narrow<stages>, true>(p, tile, slot, columns, staging);
    } else {
        narrow_backward<Narrow<stages>, false>(p, tile, slot, columns, staging);
    }
}

template <int stages>
cudaError_t launch_narrow_stages(cudaStream_t stream, const PassParams& p, int shared_limit) {
    const dim3 grid(static_cast<unsigned>(parts_before(p, p.tables.target_count)),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_with_shared<narrow_backward_kernel<stages>, Narrow<stages>::bytes>(
        stream, shared_limit, grid, wide_threads, p);
}

/// Tiles have at most ds_rows rows, slots at most block_ranks ranks.
inline cudaError_t launch_narrow_backward(cudaStream_t stream, const PassParams& p,
                                          int shared_limit) {
    return shared_limit < most_shared_bytes ? launch_narrow_stages<2>(stream, p, shared_limit)
                                            : launch_narrow_stages<3>(stream, p, shared_limit);
}

}  // namespace loratrain::kernels::pass

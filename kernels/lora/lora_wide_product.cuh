#pragma once

#include "lora_wide_sweep.cuh"

/// X times factors of up to 64 ranks, of as many columns as a thread block adds up before what it
/// has goes through memory: S of X and A, and dS of dY and B, of slots of many ranks.
namespace loratrain::kernels::sweep {

constexpr int part_columns = lora_part_columns;
constexpr int wide_rows = wide_warps * block_rows;  ///< of a thread block

/// Shared memory of a thread block: lines of X, each warp its own rows, and the factors of a line
/// in two buffers.
template <int blocks>
struct WideProduct {
    static constexpr int stages = 2;
    static constexpr int chunks = line_columns / chunk_columns;
    static constexpr int eights = blocks * block_ranks / 8;     ///< of ranks
    static constexpr int turns = chunks * eights / wide_warps;  ///< of a warp, to bring factors
    static constexpr int factor_pieces = chunks * eights * 32;
    static constexpr int factor_start = stages * wide_warps * stage_pieces;
    static constexpr int bytes = (factor_start + 2 * factor_pieces) * 16;
    static_assert(bytes <= least_shared_bytes);
};

/// sums [32 rows, ranks] of a warp += X times the factors of one line.
template <int blocks>
__device__ __forceinline__ void add_line(const uint4* line, const uint4* factor, int block_count,
                                         float (&sums)[block_rows / 16][blocks * 2][4]) {
    constexpr int halves = block_rows / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int chunk = 0; chunk < WideProduct<blocks>::chunks; ++chunk) {
        std::uint32_t x[halves][2][4];
#pragma unroll
        for (int m = 0; m < halves; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int piece = chunk * 4 + h * 2 + lane / 16;
                load_fragment(line + staged_piece(m * 16 + lane % 16, piece), x[m][h]);
            }
        }
#pragma unroll
        for (int block = 0; block < blocks; ++block) {
            if (block < block_count) {
#pragma unroll
                for (int eight = block * 2; eight < block * 2 + 2; ++eight) {
                    const uint4 f = factor[(chunk * blocks * 2 + eight) * 32 + lane];
#pragma unroll
                    for (int m = 0; m < halves; ++m) {
                        multiply_add(sums[m][eight], x[m][0][0], x[m][0][1], x[m][0][2], x[m][0][3],
                                     f.x, f.y);
                        multiply_add(sums[m][eight], x[m][1][0], x[m][1][1], x[m][1][2], x[m][1][3],
                                     f.z, f.w);
                    }
                }
            }
        }
    }
}

/// `part`: of row 0 of the first rank block; `stride`: to the next rank block's.
template <int blocks>
__device__ __forceinline__ void write_part(float* part, std::int64_t stride, int row, int end,
                                           int block_count,
                                           const float (&sums)[block_rows / 16][blocks * 2][4]) {
    const int first = row + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        if (first + i * 8 >= end) continue;
        float* target =
            part + static_cast<std::int64_t>(first + i * 8) * block_ranks + threadIdx.x % 4 * 2;
#pragma unroll
        for (int eight = 0; eight < blocks * 2; ++eight) {
            if (eight / 2 >= block_count) break;
            *reinterpret_cast<float2*>(target + eight / 2 * stride + eight % 2 * 8) =
                make_float2(sums[i / 2][eight][i % 2 * 2], sums[i / 2][eight][i % 2 * 2 + 1]);
        }
    }
}

/// X of 32 rows from `warp_row` on and `column_count` columns from `first_column` on, times what
/// `factors` brings of those: `load(Part&)` of one line after another, `store` of a line to shared
/// memory as B fragments, [chunk][8 ranks][lane]. The whole block calls it.
template <int blocks, class Factors>
__device__ __forceinline__ void multiply_lines(const Matrix& x, int warp_row, int end_row,
                                               int first_column, int column_count, Factors& factors,
                                               int block_count, uint4* staging,
                                               float (&sums)[block_rows / 16][blocks * 2][4]) {
    using Shape = WideProduct<blocks>;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const Bf16* from = static_cast<const Bf16*>(x.data) + warp_row * x.ld + first_column;
    const auto line_at = [&](int line) {
        return staging + (line % Shape::stages * wide_warps + warp) * stage_pieces;
    };
    const auto fetch = [&](int line) {
        copy_line_async<block_rows>(line_at(line), from + line * line_columns, x.ld,
                                    end_row - warp_row, column_count - line * line_columns);
    };
    const int lines = (column_count + line_columns - 1) / line_columns;
#pragma unroll
    for (int i = 0; i < Shape::stages - 1; ++i) {
        if (i < lines) fetch(i);
        commit_pieces();
    }
    typename Factors::Part part;
    factors.load(part);
    for (int line = 0; line < lines; ++line) {
        uint4* factor = staging + Shape::factor_start + line % 2 * Shape::factor_pieces;
        factors.store(part, factor);
        wait_for_pieces<Shape::stages - 2>();
        __syncthreads();
        if (line + Shape::stages - 1 < lines) fetch(line + Shape::stages - 1);
        commit_pieces();
        if (line + 1 < lines) factors.load(part);
        if (warp_row < end_row) add_line<blocks>(line_at(line), factor, block_count, sums);
    }
    wait_for_pieces<0>();
}

}  // namespace loratrain::kernels::sweep

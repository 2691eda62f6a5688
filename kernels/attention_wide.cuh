#pragma once

#include "attention_tile.cuh"

/// Pieces of the tensor-core attention kernels for heads of more than 128 columns. A tile is panels
/// of 64 columns, one behind the other, each as Tile<64> has it. A block's four warps have 16 rows
/// of a resident tile each, and sums of 16 x dim in registers; so few rows that three to four tiles
/// fit in least_shared_bytes. Two streamed tiles are loaded in turn: each while products read the
/// other.

namespace loratrain::kernels {

constexpr int wide_rows = attention_wide_rows;
constexpr int wide_warp_rows = 16;
static_assert(wide_rows == attention_threads / 32 * wide_warp_rows);

using Panel = Tile<64>;

template <int dim, int rows>
struct WideTile {
    static constexpr int panels = dim / 64;
    static constexpr int panel_bytes = Panel::bytes(rows);
    static constexpr int bytes = panels * panel_bytes;

    /// Copies rows [begin, begin + rows), by all threads of the block; zeros beyond the sample and
    /// beyond head_dim.
    static __device__ __forceinline__ void load(std::uint32_t tile, const HeadRows& source,
                                                int begin) {
#pragma unroll
        for (int panel = 0; panel < panels; ++panel) {
            Panel::load<rows>(tile + panel * panel_bytes, columns_from(source, panel), begin);
        }
    }

    /// Moves the address of a lane's part of a fragment 16 columns k times.
    static __device__ __forceinline__ std::uint32_t step(std::uint32_t address, int k) {
        return Panel::step(address, k % 4) + k / 4 * panel_bytes;
    }

    /// Writes a warp's 16 x dim sums times `factor` (of rows r and r + 8) to rows [begin, begin +
    /// 16) of the head, through the 16 rows of a tile at `rows_of_warp`, which no other warp reads.
    static __device__ __forceinline__ void store(std::uint32_t rows_of_warp,
                                                 const float (&sums)[dim / 8][4],
                                                 const float (&factor)[2], const HeadRows& target,
                                                 int begin, int lane) {
        __syncwarp();
#pragma unroll
        for (int panel = 0; panel < panels; ++panel) {
            Panel::store(rows_of_warp + panel * panel_bytes,
                         *reinterpret_cast<const float(*)[8][4]>(sums + panel * 8), factor, lane);
        }
        __syncwarp();
#pragma unroll
        for (int panel = 0; panel < panels; ++panel) {
            Panel::copy_out<wide_warp_rows>(columns_from(target, panel), begin,
                                            rows_of_warp + panel * panel_bytes, lane);
        }
    }
};

/// scores[16, 8 * n_tiles] += A[16, dim] B[8 * n_tiles, dim]ᵀ; A: rows of a tile of wide_rows rows.
template <int dim, int n_tiles>
__device__ __forceinline__ void add_wide_scores(float (&scores)[n_tiles][4], std::uint32_t a_rows,
                                                std::uint32_t b_tile, int lane) {
    const std::uint32_t a_first = Panel::fragment(a_rows, lane);
    const std::uint32_t b_first = Panel::fragment_b(b_tile, lane);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        std::uint32_t a[4];
        load_fragments(a, WideTile<dim, wide_rows>::step(a_first, k));
        const std::uint32_t b_at = WideTile<dim, 8 * n_tiles>::step(b_first, k);
#pragma unroll
        for (int n = 0; n < n_tiles / 2; ++n) {
            std::uint32_t b[4];
            load_fragments(b, b_at + n * 16 * Panel::row_bytes);
            multiply(scores[2 * n], a, b[0], b[1]);
            multiply(scores[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/// sums[16, dim] += P[16, 8 * n_tiles] B[8 * n_tiles, dim], P in accumulators.
template <int dim, int n_tiles>
__device__ __forceinline__ void add_wide_sums(float (&sums)[dim / 8][4],
                                              const float (&p)[n_tiles][4], std::uint32_t b_tile,
                                              int lane) {
    const std::uint32_t b_first = Panel::fragment(b_tile, lane);
#pragma unroll
    for (int k = 0; k < n_tiles / 2; ++k) {
        std::uint32_t a[4];
        as_operand(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < dim / 16; ++n) {
            std::uint32_t b[4];
            load_fragments_transposed(
                b, WideTile<dim, 8 * n_tiles>::step(b_first, n) + k * 16 * Panel::row_bytes);
            multiply(sums[2 * n], a, b[0], b[1]);
            multiply(sums[2 * n + 1], a, b[2], b[3]);
        }
    }
}

}  // namespace loratrain::kernels

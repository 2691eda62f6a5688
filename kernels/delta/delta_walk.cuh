#pragma once

#include "delta_chunk.cuh"

/// Pieces of the kernels that go through the chunks of a sample with a state [Dk, Dv] or its
/// gradient. Its columns do not depend on each other: a warp has 16 of them, transposed, in its
/// accumulators, which are also the A operand of products. Half of a block's warps copy the chunks
/// to come meanwhile.

namespace loratrain::kernels::delta {

constexpr int slice = 32;  ///< columns of a block
constexpr int slices = dim / slice;
constexpr int computing = slice / 16 * 32;
constexpr int copying = chunk_rows;
constexpr int slice_tile_bytes = chunk_rows * slice * 2;

/// What a block goes through.
struct Walk {
    std::int64_t first;  ///< row of the sample
    int rows;            ///< of the sample
    int head;
    int key_head;
    int column;  ///< the slice's first, of the head

    __device__ static Walk of(const DeltaRuleParams& p) {
        Walk walk;
        walk.first = p.rows.offsets[blockIdx.y];
        walk.rows = static_cast<int>(p.rows.offsets[blockIdx.y + 1] - walk.first);
        walk.head = static_cast<int>(blockIdx.x) / slices;
        walk.key_head = walk.head / (p.value_heads / p.key_heads);
        walk.column = static_cast<int>(blockIdx.x) % slices * slice;
        return walk;
    }
    static dim3 grid(const DeltaRuleParams& p) {
        return {static_cast<unsigned>(p.value_heads * slices),
                static_cast<unsigned>(p.rows.samples)};
    }
};

__device__ __forceinline__ void copy_float(std::uint32_t to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0));
}

/// Rounds Sᵀ to operands, and stores it before the chunk that begins with row `first`.
__device__ __forceinline__ void round_state(std::uint32_t (&operand)[8][4],
                                            const float (&state)[16][4], char* to, int lane) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        as_operand(operand[k], state[2 * k], state[2 * k + 1]);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            *reinterpret_cast<std::uint32_t*>(to + block_at<dim>(part % 2, 2 * k + part / 2) +
                                              lane * 4) = operand[k][part];
        }
    }
}

/// values += Xᵀ [16, 64] for 16 columns of a tile X [64, slice] at `tile`.
__device__ __forceinline__ void add_slice(float (&values)[8][4], std::uint32_t tile, int lane) {
    const std::uint32_t at = tile + cols_first<slice>(lane);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        std::uint32_t words[4];
        load_fragments_transposed(words, at + block_at<slice>(n, 0));
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            values[n + part / 2][part % 2 * 2] += low_half(words[part]);
            values[n + part / 2][part % 2 * 2 + 1] += high_half(words[part]);
        }
    }
}

/// Stores values [16, 64] transposed: `to` is the first row's first column of 16.
__device__ __forceinline__ void store_values(const float (&v)[8][4], Bf16* to, std::int64_t ld,
                                             int rows, int lane) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int row = n * 8 + lane / 4;
        const std::uint32_t left = transpose(pack(v[n][0], v[n][1]));
        const std::uint32_t right = transpose(pack(v[n][2], v[n][3]));
        if (row >= rows) continue;
        auto* words = reinterpret_cast<std::uint32_t*>(to + row * ld) + lane % 4;
        words[0] = left;
        words[4] = right;
    }
}

/// sums += Sᵀ Xᵀ for a tile X [64, dim], n from row to row of X.
__device__ __forceinline__ void add_products(float (&sums)[8][4],
                                             const std::uint32_t (&state)[8][4], std::uint32_t tile,
                                             int lane) {
    const std::uint32_t at = tile + cols_first<dim>(lane);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            std::uint32_t right[4];
            load_fragments(right, at + block_at<dim>(n, 2 * k));
            multiply_add(sums[n], state[k], right[0], right[1]);
            multiply_add(sums[n + 1], state[k], right[2], right[3]);
        }
    }
}

/// state += a X for the columns a [16, 16] of rows 16 k .. 16 k + 15 of a tile X [64, dim].
__device__ __forceinline__ void add_rows(float (&state)[16][4], const std::uint32_t (&a)[4],
                                         std::uint32_t tile, int k, int lane) {
    const std::uint32_t at = tile + block_at<dim>(2 * k, 0) + rows_first<dim>(lane);
#pragma unroll
    for (int n = 0; n < 16; n += 2) {
        std::uint32_t right[4];
        load_fragments_transposed(right, at + block_at<dim>(0, n));
        multiply_add(state[n], a, right[0], right[1]);
        multiply_add(state[n + 1], a, right[2], right[3]);
    }
}

}  // namespace loratrain::kernels::delta

#pragma once

#include "delta_chunk.cuh"

/// Pieces of the kernel of delta_gradients.cu: its shared memory, what a warp has of a tile, and
/// products of tiles.

namespace loratrain::kernels::delta {

constexpr int gradient_threads = 256;
constexpr int half_dim = dim / 2;  ///< columns of a warp, which has 16 rows

/// Sums over columns of products with a row: each warp has half of the columns.
enum RowSum { of_values, of_queries, of_old_keys, of_keys, of_rests, row_sums };

/// Shared memory of a block.
struct Scratch {
    float query_factors[chunk_rows];  ///< 1 / (|q| sqrt(Dk)); 0 beyond the chunk
    float key_factors[chunk_rows];    ///< 1 / |k|; 0 beyond the chunk
    float sums[2][chunk_rows];        ///< G, of two heads in turn
    float beta[2][chunk_rows];
    float parts[row_sums][2][chunk_rows];
    float states[gradient_threads / 32];  ///< parts of the product of S and dS
    float with_query[chunk_rows];         ///< q . dq^ of all heads so far, in units of factors
    float with_key[chunk_rows];
};

constexpr int queries_at = 0;
constexpr int keys_at = queries_at + dim_tile_bytes;
constexpr int outputs_at = keys_at + dim_tile_bytes;     ///< dO
constexpr int values_at = outputs_at + dim_tile_bytes;   ///< V'
constexpr int d_values_at = values_at + dim_tile_bytes;  ///< dV', then dV
constexpr int rests_at = d_values_at + dim_tile_bytes;   ///< dR
constexpr int inverse_at = rests_at + dim_tile_bytes;    ///< T, then -beta Z
constexpr int y_at = inverse_at + square_tile_bytes;
constexpr int z_at = y_at + square_tile_bytes;  ///< -Z
constexpr int scratch_at = z_at + square_tile_bytes;
constexpr int state_at = scratch_at + 5 * 1024;
static_assert(sizeof(Scratch) <= 5 * 1024);
/// With `roomy` a tile of its own for dS; else it follows S in the same place.
template <bool roomy>
constexpr int d_state_at = roomy ? state_at + state_bytes : state_at;
template <bool roomy>
constexpr int shared_bytes = d_state_at<roomy> + state_bytes;
static_assert(shared_bytes<false> <= delta_backward_shared_bytes);
static_assert(shared_bytes<true> <= most_shared_bytes);

/// A warp's 16 rows and 64 columns of a tile of 128.
using Sums = float[8][4];

/// What a thread of a block works on: a warpgroup has half of the columns of every tile.
struct Place {
    int thread;
    int lane;
    int rows;  ///< block of 16 rows
    int half;  ///< of the columns
    std::uint32_t shared;

    /// Left operand of columns 16 k .. 16 k + 15 of a tile [64, cols].
    template <int cols>
    __device__ Left<cols> left(int tile, int k) const {
        return {shared + tile + block_at<cols>(0, 2 * k)};
    }
    /// Left operand of rows 16 k .. 16 k + 15 of a tile [64, 64], transposed.
    __device__ Left<chunk_rows, true> left_transposed(int tile, int k) const {
        return {shared + tile + block_at<chunk_rows>(2 * k, 0)};
    }
    /// The half's columns of rows 16 k .. 16 k + 15 of a tile [k, dim].
    __device__ std::uint32_t right(int tile, int k) const {
        return shared + tile + block_at<dim>(2 * k, half * half_dim / 8);
    }
    /// The warp's sums in a tile [64, dim].
    __device__ std::uint32_t own(int tile) const {
        return shared + tile + block_at<dim>(2 * rows, half * half_dim / 8);
    }
    __device__ int row(int upper) const { return rows * 16 + upper * 8 + lane / 4; }
};

/// c = rows of `left` times rows 32 half .. 32 half + 31 of `right`.
__device__ __forceinline__ void multiply_rows_of(float (&c)[4][4], const Place& at, int left,
                                                 int right) {
    begin_products(c);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        add_rows<dim>(c, at.left<dim>(left, k),
                      at.shared + right + block_at<dim>(4 * at.half, 2 * k), at.rows, at.lane);
    }
    commit_products();
    wait_for_products<0>(c);
}

/// Calls f(c, i, j) for each of these sums, with rows i and columns j of the chunk.
template <class F>
__device__ __forceinline__ void for_each_score(float (&c)[4][4], const Place& at, const F& f) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            f(c[n][e], at.row(e / 2), at.half * 32 + n * 8 + at.lane % 4 * 2 + e % 2);
        }
    }
}

__device__ __forceinline__ void store_scores(std::uint32_t tile, const float (&c)[4][4],
                                             const Place& at) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        store_sums<chunk_rows>(tile + block_at<chunk_rows>(2 * at.rows, 4 * at.half + n), c[n],
                               at.lane);
    }
}

/// Writes the sums over the warp's columns of c times the elements that word(n, upper) has two of.
template <class Word>
__device__ __forceinline__ void sum_rows(float (&parts)[2][chunk_rows], const Sums& c,
                                         const Place& at, const Word& word) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
        float sum = 0.0F;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const std::uint32_t pair = word(n, upper);
            sum += c[n][2 * upper] * low_half(pair) + c[n][2 * upper + 1] * high_half(pair);
        }
        sum = quad_sum(sum);
        if (at.lane % 4 == 0) parts[at.half][at.row(upper)] = sum;
    }
}

__device__ __forceinline__ auto words_of(const Place& at, int tile) {
    return [own = at.own(tile) + at.lane * 4](int n, int upper) {
        return load_word(own + block_at<dim>(upper, n));
    };
}

__device__ __forceinline__ void scale(Sums& c, float upper, float lower) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        c[n][0] *= upper;
        c[n][1] *= upper;
        c[n][2] *= lower;
        c[n][3] *= lower;
    }
}

}  // namespace loratrain::kernels::delta

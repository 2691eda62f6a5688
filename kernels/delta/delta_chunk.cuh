#pragma once

#include "delta_rows.cuh"
#include "kernels/attention_tile.cuh"
#include "kernels/device_math.cuh"
#include "kernels/launch.cuh"
#include "kernels/tensor_core.cuh"

/// Pieces of the tensor-core kernels of the delta rule: tiles in shared memory; what is beside
/// tensors in the workspace.
///
/// A tile of bf16 lies in blocks of 8 x 8, 128 bytes each, row after row of blocks: ldmatrix meets
/// no bank twice, and a lane's address differs from fragment to fragment by a constant.

namespace loratrain::kernels::delta {

constexpr int dim = delta_tensor_dim;
constexpr int block_bytes = 128;
constexpr int dim_tile_bytes = chunk_rows * dim * 2;
constexpr int square_tile_bytes = chunk_rows * chunk_rows * 2;
constexpr int state_bytes = dim * dim * 2;

/// Where the state before a chunk that begins with row `first` lies, for a value head: Sᵀ as a tile
/// [Dv, Dk] in bf16, and behind it the gradient of the state in the same form.
__device__ __forceinline__ char* state_of(const DeltaRuleParams& p, std::int64_t first, int head) {
    return reinterpret_cast<char*>(p.states) +
           ((first / chunk_rows - 1) * p.value_heads + head) * (2 * state_bytes);
}

/// The workspace: of all rows, [T, ...].
struct Workspace {
    float* query_factors;  ///< [T, Hk], 1 / (|q| sqrt(Dk))
    float* key_factors;    ///< [T, Hk], 1 / |k|
    float* sums;           ///< [T, Hv], G: sums of g from the chunk's first row on
    Bf16* w;               ///< [T, Hv Dk], T (beta e^G k^)
    Bf16* u;               ///< [T, Hv Dv], T (beta v), then U - W S
    Bf16* inverses;        ///< [T, Hv 64], T; gradients alone have it
    Bf16* d_u;             ///< [T, Hv Dv]; gradients alone have it

    __host__ static Workspace of(const DeltaRuleParams& p) {
        const std::int64_t key = p.rows.tokens * p.key_heads;
        const std::int64_t value = p.rows.tokens * p.value_heads;
        Workspace w{};
        w.w = static_cast<Bf16*>(p.workspace);
        w.u = w.w + value * dim;
        w.inverses = nullptr;
        w.query_factors = reinterpret_cast<float*>(w.u + value * dim);
        w.key_factors = w.query_factors + key;
        w.sums = w.key_factors + key;
        return w;
    }
    __host__ static Workspace of(const DeltaRuleBackwardParams& p) {
        const std::int64_t value = p.forward.rows.tokens * p.forward.value_heads;
        Workspace w = of(p.forward);
        w.inverses = w.u + value * dim;
        w.d_u = w.inverses + value * chunk_rows;
        const std::int64_t key = p.forward.rows.tokens * p.forward.key_heads;
        w.query_factors = reinterpret_cast<float*>(w.d_u + value * dim);
        w.key_factors = w.query_factors + key;
        w.sums = w.key_factors + key;
        return w;
    }
};

/// A block of a tile of `cols` columns.
template <int cols>
__host__ __device__ constexpr int block_at(int row_block, int col_block) {
    return (row_block * (cols / 8) + col_block) * block_bytes;
}

/// A lane's part of the address of four blocks: (0, 0), (1, 0), (0, 1), (1, 1). So lie the A
/// operand of a tile [m, k], and transposed the B operand of a tile [k, n].
template <int cols>
__device__ __forceinline__ int rows_first(int lane) {
    return block_at<cols>(lane / 8 % 2, lane / 16) + lane % 8 * 16;
}
/// (0, 0), (0, 1), (1, 0), (1, 1): the B operand of a tile [n, k], and transposed the A operand of
/// a tile [k, m].
template <int cols>
__device__ __forceinline__ int cols_first(int lane) {
    return block_at<cols>(lane / 16, lane / 8 % 2) + lane % 8 * 16;
}

/// Copies `rows` rows of `copied` columns into a tile, by `threads` threads; zeros from `valid` on.
template <int rows, int copied, int threads>
__device__ __forceinline__ void copy_in(std::uint32_t tile, const Bf16* from, std::int64_t ld,
                                        int valid, int thread) {
    constexpr int units_of_row = copied / 32;
    const int row = thread % 8;
    const int piece = thread % 32 / 8;
#pragma unroll
    for (int unit = thread / 32; unit < rows / 8 * units_of_row; unit += threads / 32) {
        const int at = unit / units_of_row * 8 + row;
        const int column = unit % units_of_row * 4 + piece;
        const bool inside = at < valid;
        copy_16_async(tile + block_at<copied>(unit / units_of_row, column) + row * 16,
                      from + (inside ? at * ld : 0) + column * 8, inside ? 16 : 0);
    }
}

/// Copies the first `valid` of `rows` rows out of a tile, as copy_in().
template <int rows, int copied, int threads>
__device__ __forceinline__ void copy_out(Bf16* to, std::int64_t ld, int valid, std::uint32_t tile,
                                         int thread) {
    constexpr int units_of_row = copied / 32;
    const int row = thread % 8;
    const int piece = thread % 32 / 8;
#pragma unroll
    for (int unit = thread / 32; unit < rows / 8 * units_of_row; unit += threads / 32) {
        const int at = unit / units_of_row * 8 + row;
        const int column = unit % units_of_row * 4 + piece;
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(tile + block_at<copied>(unit / units_of_row, column) + row * 16)
                     : "memory");
        if (at < valid) *reinterpret_cast<uint4*>(to + at * ld + column * 8) = v;
    }
}

/// Copies a tile of `bytes` bytes as it lies.
template <int bytes, int threads>
__device__ __forceinline__ void copy_tile(std::uint32_t tile, const char* from, int thread) {
#pragma unroll
    for (int at = thread * 16; at < bytes; at += threads * 16)
        copy_16_async(tile + at, from + at, 16);
}

__device__ __forceinline__ void store_word(std::uint32_t at, std::uint32_t word) {
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(word) : "memory");
}
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t at) {
    std::uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(at) : "memory");
    return word;
}

/// Puts 16 x 8 sums, rounded, into two blocks of a tile; `at`: the upper block.
template <int cols>
__device__ __forceinline__ void store_sums(std::uint32_t at, const float (&c)[4], int lane) {
    store_word(at + lane * 4, pack(c[0], c[1]));
    store_word(at + block_at<cols>(1, 0) + lane * 4, pack(c[2], c[3]));
}

/// The transpose of an 8 x 8 block whose row lane / 4 has columns 2 (lane % 4), + 1 in a word.
__device__ __forceinline__ std::uint32_t transpose(std::uint32_t word) {
    std::uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(word));
    return result;
}

/// The rows of one head in a matrix, from a chunk's first row on.
__device__ __forceinline__ Bf16* head_of(const Matrix& matrix, std::int64_t first, int head) {
    return static_cast<Bf16*>(matrix.data) + first * matrix.ld + head * dim;
}

/// Copies `rows` rows of a head into a tile, from row `first` on, by `threads` threads.
template <int threads>
__device__ __forceinline__ void copy_head_in(std::uint32_t tile, const Matrix& matrix,
                                             std::int64_t first, int head, int rows, int thread) {
    copy_in<chunk_rows, dim, threads>(tile, head_of(matrix, first, head), matrix.ld, rows, thread);
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
    kernels::multiply_add(c, a[0], a[1], a[2], a[3], b0, b1);
}

/// e^x for x <= 0; 1 for what is not.
__device__ __forceinline__ float decay(float x) {
    return exp2_fast(fminf(x, 0.0F) * log2_e);
}

}  // namespace loratrain::kernels::delta

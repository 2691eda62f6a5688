#pragma once

#include "delta_products.cuh"
#include "delta_rows.cuh"
#include "kernels/device_math.cuh"
#include "kernels/launch.cuh"

/// Pieces of the tensor-core kernels of the delta rule: what is beside tensors in the workspace,
/// and copies of tiles (delta_products.cuh) between it, tensors and shared memory.

namespace loratrain::kernels::delta {

constexpr int dim = delta_tensor_dim;
constexpr int dim_tile_bytes = chunk_rows * dim * 2;
constexpr int square_tile_bytes = chunk_rows * chunk_rows * 2;
constexpr int state_bytes = dim * dim * 2;

/// Where the state before a chunk that begins with row `first` lies, for a value head: Sᵀ as a tile
/// [Dv, Dk] in bf16, and behind it the gradient of the state in the same form.
__device__ __forceinline__ char* state_of(const DeltaRuleParams& p, std::int64_t first, int head) {
    return reinterpret_cast<char*>(p.states) +
           ((first / chunk_rows - 1) * p.value_heads + head) * (2 * state_bytes);
}

/// The workspace, head after head, each with all rows. Tiles of a whole chunk lie in blocks, as in
/// shared memory; those of a shorter one row after row.
struct Workspace {
    float* query_factors;  ///< [Hk, T], 1 / (|q| sqrt(Dk))
    float* key_factors;    ///< [Hk, T], 1 / |k|
    float* sums;           ///< [Hv, T], G: sums of g from the chunk's first row on
    float* of_queries;     ///< [Hv, T], e^G / (|q| sqrt(Dk))
    float* of_keys;        ///< [Hv, T], e^(G_last - G) / |k|
    Bf16* w;               ///< [Hv, T, Dk], -T (beta e^G k^)
    Bf16* u;               ///< [Hv, T, Dv], T (beta v); of gradients then U - W S
    Bf16* scores;          ///< [Hv, T, 64], P
    Bf16* inverses;        ///< [Hv, T, 64], T; gradients alone have it
    Bf16* d_u;             ///< [Hv, T, Dv], dV'; gradients alone have it
    std::int64_t tokens;

    __host__ static Workspace of(const DeltaRuleParams& p, bool of_gradients) {
        const std::int64_t key = p.rows.tokens * p.key_heads;
        const std::int64_t value = p.rows.tokens * p.value_heads;
        Workspace w{};
        w.tokens = p.rows.tokens;
        auto* next = static_cast<Bf16*>(p.workspace);
        const auto take = [&](std::int64_t cols) {
            Bf16* const taken = next;
            next += value * cols;
            return taken;
        };
        w.w = take(dim);
        w.u = take(dim);
        w.scores = take(chunk_rows);
        if (of_gradients) {
            w.inverses = take(chunk_rows);
            w.d_u = take(dim);
        }
        w.query_factors = reinterpret_cast<float*>(next);
        w.key_factors = w.query_factors + key;
        w.sums = w.key_factors + key;
        w.of_queries = w.sums + value;
        w.of_keys = w.of_queries + value;
        return w;
    }
    /// Where a head has row `first` of something with `cols` numbers a row.
    template <class T>
    __device__ T* at(T* data, int head, std::int64_t first, int cols = 1) const {
        return data + (head * tokens + first) * cols;
    }
};

__device__ __forceinline__ void store_word(std::uint32_t at, std::uint32_t word) {
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(word) : "memory");
}
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t at) {
    std::uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(word) : "r"(at) : "memory");
    return word;
}
__device__ __forceinline__ uint4 load_piece(std::uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/// Copies `copied` columns of a chunk's rows into a tile, by `threads` threads; zeros from `valid`
/// on.
template <int copied, int threads>
__device__ __forceinline__ void copy_in(std::uint32_t tile, const Bf16* from, std::int64_t ld,
                                        int valid, int thread) {
    constexpr int units_of_row = copied / 32;
    constexpr int at_once = threads / 32 / units_of_row;  // 8 rows each
    const int unit = thread / 32;
    int row = unit / units_of_row * 8 + thread % 8;
    const int piece = unit % units_of_row * 4 + thread % 32 / 8;
    const Bf16* source = from + row * ld + piece * 8;
    std::uint32_t target = tile + block_at<copied>(unit / units_of_row, piece) + thread % 8 * 16;
#pragma unroll
    for (int i = 0; i < chunk_rows / 8 / at_once; ++i) {
        const bool inside = row < valid;
        copy_16_async(target, inside ? source : from, inside ? 16 : 0);
        row += 8 * at_once;
        source += 8 * at_once * ld;
        target += block_at<copied>(at_once, 0);
    }
}

/// Copies the first `valid` rows out of a tile, as copy_in().
template <int copied, int threads>
__device__ __forceinline__ void copy_out(Bf16* to, std::int64_t ld, int valid, std::uint32_t tile,
                                         int thread) {
    constexpr int units_of_row = copied / 32;
    constexpr int at_once = threads / 32 / units_of_row;
    const int unit = thread / 32;
    int row = unit / units_of_row * 8 + thread % 8;
    const int piece = unit % units_of_row * 4 + thread % 32 / 8;
    Bf16* target = to + row * ld + piece * 8;
    std::uint32_t source = tile + block_at<copied>(unit / units_of_row, piece) + thread % 8 * 16;
#pragma unroll
    for (int i = 0; i < chunk_rows / 8 / at_once; ++i) {
        const uint4 v = load_piece(source);
        if (row < valid) *reinterpret_cast<uint4*>(target) = v;
        row += 8 * at_once;
        target += 8 * at_once * ld;
        source += block_at<copied>(at_once, 0);
    }
}

/// Copies `bytes` bytes as they lie.
template <int bytes, int threads>
__device__ __forceinline__ void copy_bytes(std::uint32_t tile, const void* from, int thread) {
    const char* source = static_cast<const char*>(from) + thread * 16;
#pragma unroll
    for (int at = 0; at < bytes; at += threads * 16) {
        copy_16_async(tile + thread * 16 + at, source + at, 16);
    }
}

/// Copies the columns from `column` on of a chunk's tile of the workspace, which has `cols`, into a
/// tile of `copied`.
template <int cols, int copied, int threads>
__device__ __forceinline__ void copy_tile(std::uint32_t tile, const Bf16* from, int column,
                                          int rows, int thread) {
    if (rows < chunk_rows) {
        copy_in<copied, threads>(tile, from + column, cols, rows, thread);
    } else if constexpr (cols == copied) {
        copy_bytes<chunk_rows * cols * 2, threads>(tile, from, thread);
    } else {
        constexpr int pieces_of_blocks = copied;  // of 8 rows
        constexpr int at_once = threads / pieces_of_blocks;
        const int first = thread / pieces_of_blocks;
        const int byte = thread % pieces_of_blocks * 16;
        const char* source = reinterpret_cast<const char*>(from) + block_at<cols>(first, 0) +
                             column / 8 * block_bytes + byte;
#pragma unroll
        for (int i = 0; i < chunk_rows / 8 / at_once; ++i) {
            copy_16_async(tile + block_at<copied>(first + i * at_once, 0) + byte,
                          source + block_at<cols>(i * at_once, 0), 16);
        }
    }
}

/// Calls put(store) with a function store(row block, column block, word) that puts a word of each
/// lane, row lane / 4 of a block of 8 x 8, into a chunk's tile of the workspace.
template <int cols, class Put>
__device__ __forceinline__ void store_blocks(Bf16* to, int rows, int lane, const Put& put) {
    if (rows == chunk_rows) {
        char* const base = reinterpret_cast<char*>(to) + lane * 4;
        put([&](int row_block, int col_block, std::uint32_t word) {
            *reinterpret_cast<std::uint32_t*>(base + block_at<cols>(row_block, col_block)) = word;
        });
    } else {
        char* const base = reinterpret_cast<char*>(to + lane / 4 * cols + lane % 4 * 2);
        put([&](int row_block, int col_block, std::uint32_t word) {
            if (row_block * 8 + lane / 4 >= rows) return;
            *reinterpret_cast<std::uint32_t*>(base + row_block * (16 * cols) + col_block * 16) =
                word;
        });
    }
}

/// Puts a warp's 16 rows of sums into a chunk's tile of the workspace.
template <int n>
__device__ __forceinline__ void store_rows(Bf16* to, const float (&c)[n][4], int warp, int rows,
                                           int lane) {
    store_blocks<8 * n>(to, rows, lane, [&](const auto& store) {
#pragma unroll
        for (int i = 0; i < n; ++i) {
            store(2 * warp, i, pack(c[i][0], c[i][1]));
            store(2 * warp + 1, i, pack(c[i][2], c[i][3]));
        }
    });
}

__device__ __forceinline__ void copy_float(std::uint32_t to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0));
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
    copy_in<dim, threads>(tile, head_of(matrix, first, head), matrix.ld, rows, thread);
}

/// e^x for x <= 0; 1 for what is not.
__device__ __forceinline__ float decay(float x) {
    return exp2_fast(fminf(x, 0.0F) * log2_e);
}

}  // namespace loratrain::kernels::delta

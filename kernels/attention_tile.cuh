#pragma once

#include <cstdint>

#include "attention.h"
#include "device_math.cuh"

/// Pieces of the tensor-core attention kernels: tiles of bf16 in shared memory, rows of `dim`
/// elements in chunks of 16 bytes whose index is xor-ed with the row (no bank conflicts), and the
/// m16n8k16 fragments that a warp reads from them.

namespace loratrain::kernels {

constexpr int attention_threads = 128;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies `bytes` bytes (<= 16) and fills the rest of 16 bytes with zeros.
__device__ __forceinline__ void copy_16_async(std::uint32_t target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(source),
                 "r"(bytes));
}

__device__ __forceinline__ void copy_8_async(std::uint32_t target, const void* source, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(target), "l"(source),
                 "r"(bytes));
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;\n" ::);
}

__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

__device__ __forceinline__ void load_fragments(std::uint32_t (&r)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_fragments_transposed(std::uint32_t (&r)[4],
                                                          std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

/// Two neighbouring m16n8 accumulators as the A operand of the next product.
__device__ __forceinline__ void as_operand(std::uint32_t (&a)[4], const float (&left)[4],
                                           const float (&right)[4]) {
    a[0] = pack(left[0], left[1]);
    a[1] = pack(left[2], left[3]);
    a[2] = pack(right[0], right[1]);
    a[3] = pack(right[2], right[3]);
}

/// One head's columns of a sample's rows in device memory.
struct HeadRows {
    Bf16* data;
    int ld;
    int length;
    int chunks;  ///< head_dim / 8
};

__device__ __forceinline__ HeadRows head_rows(const Matrix& matrix, const AttentionTile& tile,
                                              int head, int head_dim) {
    return {static_cast<Bf16*>(matrix.data) + tile.first * matrix.ld + head * head_dim,
            static_cast<int>(matrix.ld), tile.length, head_dim / 8};
}

/// The head's columns from 64 * panel on.
__device__ __forceinline__ HeadRows columns_from(const HeadRows& head, int panel) {
    return {head.data + panel * 64, head.ld, head.length, head.chunks - panel * 8};
}

/// The tiles of `rows` queries that one key-value head meets, head by head of its group.
template <int rows>
struct QueryWalk {
    int head;
    int begin;

    __device__ __forceinline__ void next(const AttentionTile& tile, int end) {
        begin += rows;
        if (begin >= end) {
            begin = tile.begin;
            ++head;
        }
    }
};

template <int dim>
struct Tile {
    static constexpr int row_bytes = dim * 2;
    static constexpr int chunks = dim / 8;
    static constexpr int rows_per_pass = attention_threads / chunks;
    static __host__ __device__ constexpr int bytes(int rows) { return rows * row_bytes; }
    /// Where chunk `chunk` of a row lies, in a tile at `tile` or from its begin.
    static __device__ __forceinline__ std::uint32_t at(std::uint32_t tile, int row, int chunk) {
        return tile + row * row_bytes + ((chunk ^ (row & 7)) << 4);
    }
    static __device__ __forceinline__ std::uint32_t offset(int row, int chunk) {
        return at(0, row, chunk);
    }

    /// Copies rows [begin, begin + rows), by all threads of the block; zeros beyond the sample and
    /// beyond head_dim.
    template <int rows>
    static __device__ __forceinline__ void load(std::uint32_t tile, const HeadRows& source,
                                                int begin) {
        const int chunk = static_cast<int>(threadIdx.x) % chunks;
        const int row = static_cast<int>(threadIdx.x) / chunks;
        const std::uint32_t target = at(tile, row, chunk);
        const bool inside = chunk < source.chunks;
        const int limit = inside ? source.length - begin : 0;
        const Bf16* from =
            source.data + static_cast<std::int64_t>(begin + row) * source.ld + chunk * 8;
#pragma unroll
        for (int i = 0; i < rows / rows_per_pass; ++i) {
            copy_16_async(target + i * rows_per_pass * row_bytes, from,
                          row + i * rows_per_pass < limit ? 16 : 0);
            from += rows_per_pass * source.ld;
        }
    }

    /// Where a lane reads its part of a fragment; step(address, k) moves it 16 columns k times
    /// (tiles start at multiples of row_bytes). A operand of rows [0, 16), also the B operand of a
    /// tile stored as [k, n] (transposed load).
    static __device__ __forceinline__ std::uint32_t fragment(std::uint32_t tile, int lane) {
        return tile + (lane & 15) * row_bytes + (((lane >> 4) ^ (lane & 7)) << 4);
    }
    /// B operand of a tile stored as [n, k]: 16 rows n.
    static __device__ __forceinline__ std::uint32_t fragment_b(std::uint32_t tile, int lane) {
        return tile + ((lane & 7) + ((lane >> 4) << 3)) * row_bytes +
               ((((lane >> 3) & 1) ^ (lane & 7)) << 4);
    }
    static __device__ __forceinline__ std::uint32_t step(std::uint32_t address, int k) {
        return address ^ (k << 5);
    }

    /// Writes a warp's 16 x dim accumulators times `factor` (of rows r and r + 8) as bf16 into rows
    /// [0, 16) of `tile`.
    static __device__ __forceinline__ void store(std::uint32_t tile, const float (&c)[dim / 8][4],
                                                 const float (&factor)[2], int lane) {
        const int row = lane >> 2;
        const std::uint32_t target = tile + row * row_bytes + ((lane & 3) << 2);
#pragma unroll
        for (int n = 0; n < dim / 8; ++n) {
            const std::uint32_t at = target + ((n ^ row) << 4);
            const std::uint32_t upper = pack(c[n][0] * factor[0], c[n][1] * factor[0]);
            const std::uint32_t lower = pack(c[n][2] * factor[1], c[n][3] * factor[1]);
            asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(upper) : "memory");
            asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at + 8 * row_bytes), "r"(lower)
                         : "memory");
        }
    }

    /// Copies rows [0, rows) of `tile` to rows [begin, begin + rows) of the head, by one warp.
    template <int rows>
    static __device__ __forceinline__ void copy_out(const HeadRows& target, int begin,
                                                    std::uint32_t tile, int lane) {
        constexpr int pass = 32 / chunks;
        const int chunk = lane % chunks;
        if (chunk >= target.chunks) return;
#pragma unroll 4
        for (int row = lane / chunks; row < rows; row += pass) {
            if (begin + row >= target.length) return;
            const std::uint32_t from = at(tile, row, chunk);
            uint4 value;
            asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                         : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                         : "r"(from)
                         : "memory");
            *reinterpret_cast<uint4*>(
                target.data + static_cast<std::int64_t>(begin + row) * target.ld + chunk * 8) =
                value;
        }
    }
};

/// acc[16, 8 * n_tiles] += A[16, dim] B[n, dim]ᵀ with A in registers.
template <int dim, int n_tiles>
__device__ __forceinline__ void multiply_rows(float (&acc)[n_tiles][4],
                                              const std::uint32_t (&a)[dim / 16][4],
                                              std::uint32_t b_tile, int lane) {
    const std::uint32_t b_first = Tile<dim>::fragment_b(b_tile, lane);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        const std::uint32_t b_at = Tile<dim>::step(b_first, k);
#pragma unroll
        for (int n = 0; n < n_tiles / 2; ++n) {
            std::uint32_t b[4];
            load_fragments(b, b_at + n * 16 * Tile<dim>::row_bytes);
            multiply(acc[2 * n], a[k], b[0], b[1]);
            multiply(acc[2 * n + 1], a[k], b[2], b[3]);
        }
    }
}

/// acc[16 * m_tiles, 8 * n_tiles] += A[16 * m_tiles, dim] B[n, dim]ᵀ with A in shared memory.
template <int dim, int m_tiles, int n_tiles>
__device__ __forceinline__ void multiply_rows(float (&acc)[m_tiles][n_tiles][4],
                                              std::uint32_t a_tile, std::uint32_t b_tile,
                                              int lane) {
    const std::uint32_t a_first = Tile<dim>::fragment(a_tile, lane);
    const std::uint32_t b_first = Tile<dim>::fragment_b(b_tile, lane);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        std::uint32_t a[m_tiles][4];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) {
            load_fragments(a[m], Tile<dim>::step(a_first, k) + m * 16 * Tile<dim>::row_bytes);
        }
        const std::uint32_t b_at = Tile<dim>::step(b_first, k);
#pragma unroll
        for (int n = 0; n < n_tiles / 2; ++n) {
            std::uint32_t b[4];
            load_fragments(b, b_at + n * 16 * Tile<dim>::row_bytes);
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                multiply(acc[m][2 * n], a[m], b[0], b[1]);
                multiply(acc[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/// acc[16 * m_tiles, dim] += P[16 * m_tiles, 8 * n_tiles] B[8 * n_tiles, dim], P in accumulators.
template <int dim, int m_tiles, int n_tiles>
__device__ __forceinline__ void multiply_columns(float (&acc)[m_tiles][dim / 8][4],
                                                 const float (&p)[m_tiles][n_tiles][4],
                                                 std::uint32_t b_tile, int lane) {
    const std::uint32_t b_first = Tile<dim>::fragment(b_tile, lane);
#pragma unroll
    for (int k = 0; k < n_tiles / 2; ++k) {
        std::uint32_t a[m_tiles][4];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) as_operand(a[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < dim / 16; ++n) {
            std::uint32_t b[4];
            load_fragments_transposed(b,
                                      Tile<dim>::step(b_first, n) + k * 16 * Tile<dim>::row_bytes);
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                multiply(acc[m][2 * n], a[m], b[0], b[1]);
                multiply(acc[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

}  // namespace loratrain::kernels

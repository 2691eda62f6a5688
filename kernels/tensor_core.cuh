#pragma once

#include <cstdint>

namespace loratrain::kernels {

/// Pieces of mma.sync m16n8k16 kernels whose rows go from global memory to registers in 16-byte
/// pieces: with q = lane % 4, g = lane / 4, the piece of row g holds columns 8q .. 8q+7 of a chunk
/// of 32 columns, word w the columns 8q+2w and 8q+2w+1. Words 2h and 2h+1 of rows g and g+8 are the
/// A fragment of the h-th product of a chunk; the summed columns come in another order than in
/// memory, the same for both operands.
constexpr int chunk_columns = 32;

__device__ __forceinline__ void copy_piece_async(void* shared, const void* global, int bytes) {
    const auto target = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(global),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy_piece_async(void* shared, const void* global) {
    const auto target = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(target), "l"(global)
                 : "memory");
}

__device__ __forceinline__ void commit_pieces() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// Returns when all but the last `pending` committed groups of this thread have arrived.
template <int pending>
__device__ __forceinline__ void wait_for_pieces() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

/// c [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void multiply_add(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                             std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                             std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// A warp's staged rows of 64 columns (128 bytes, a cache line): lanes copy 4 rows at once, 8 lanes
/// a row. The 16-byte pieces of a row are permuted, so that no two of 8 lanes meet in a bank,
/// whether they read one piece of 8 rows (ldmatrix) or the pieces 4h .. 4h+3 of two neighbouring
/// rows.
constexpr int line_columns = 64;
constexpr int line_pieces = line_columns / 8;

__device__ __forceinline__ int staged_piece(int row, int piece) {
    return row * line_pieces + (piece ^ ((row & 1) * 4 + row / 2 % 4));
}

/// Copies `row_count` rows of one line; those from `valid_rows` on and columns from `columns_left`
/// on become 0 and are not read. `source`: row 0, first column of the line.
template <int row_count, class T>
__device__ __forceinline__ void copy_line_async(uint4* staged, const T* source, std::int64_t ld,
                                                int valid_rows, int columns_left) {
    constexpr int rows_at_once = 32 / line_pieces;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = lane % line_pieces;
    const int bytes = min(16, max(0, (columns_left - piece * 8) * 2));
    const int rows_left = valid_rows - lane / line_pieces;
    const T* from = source + lane / line_pieces * ld + piece * 8;
    uint4* even = staged + staged_piece(lane / line_pieces, piece);
    uint4* odd = staged + staged_piece(lane / line_pieces + rows_at_once, piece);
    const std::int64_t stride = rows_at_once * ld;
    const auto target = [&](int i) {
        return (i % 2 == 0 ? even : odd) + i / 2 * 2 * rows_at_once * line_pieces;
    };
    if (valid_rows >= row_count && columns_left >= line_columns) {
#pragma unroll
        for (int i = 0; i < row_count / rows_at_once; ++i) {
            copy_piece_async(target(i), from);
            from += stride;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < row_count / rows_at_once; ++i) {
        copy_piece_async(target(i), from, i * rows_at_once < rows_left ? bytes : 0);
        from += stride;
    }
}

/// copy_line_async() for one chunk: rows of 64 bytes without gaps, piece `piece` of row `row` at
/// 4 row + piece. The 4 pieces of two neighbouring rows use every bank once.
template <int row_count, class T>
__device__ __forceinline__ void copy_chunk_async(uint4* staged, const T* source, std::int64_t ld,
                                                 int valid_rows, int columns_left) {
    constexpr int pieces = chunk_columns / 8;
    constexpr int rows_at_once = 32 / pieces;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = lane % pieces;
    const int bytes = min(16, max(0, (columns_left - piece * 8) * 2));
    const int rows_left = valid_rows - lane / pieces;
    const T* from = source + lane / pieces * ld + piece * 8;
    const std::int64_t stride = rows_at_once * ld;
#pragma unroll
    for (int i = 0; i < row_count / rows_at_once; ++i) {
        copy_piece_async(staged + i * 32 + lane, from, i * rows_at_once < rows_left ? bytes : 0);
        from += stride;
    }
}

/// Four transposed 8 x 8 blocks; lane i gives the 16 bytes of row i % 8 of block i / 8.
__device__ __forceinline__ void load_transposed(const void* piece, std::uint32_t (&blocks)[4]) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(piece));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                 : "r"(address));
}

/// Transposed 8 x 8 blocks, A fragment of the transpose of a [16, 16] block in rows of 32 bytes.
__device__ __forceinline__ void load_transposed_block(const void* block,
                                                      std::uint32_t (&fragment)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_transposed(
        static_cast<const char*>(block) + ((lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16),
        fragment);
}

/// A fragment of a [16, 16] block; lane i gives the 16 bytes of row i % 16, columns 8 (i / 16) ...
__device__ __forceinline__ void load_fragment(const void* piece, std::uint32_t (&fragment)[4]) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(piece));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address));
}

/// A fragment of a [16, 16] block in rows of 32 bytes.
__device__ __forceinline__ void load_block(const void* block, std::uint32_t (&fragment)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_fragment(static_cast<const char*>(block) + (lane % 16 * 32 + lane / 16 * 16), fragment);
}

}  // namespace loratrain::kernels

#pragma once

#include "kernels/attention_tile.cuh"
#include "kernels/tensor_core.cuh"

/// Products of a warpgroup (128 threads) of the delta rule's kernels: 64 rows, 16 of each warp, as
/// mma.m16n8k16 has them. The left operand is in registers, the right one a tile in shared memory.
/// Code for sm_90a lets the tensor cores read the tile (wgmma, which runs on until it is waited
/// for); other code loads it into registers and multiplies with mma.sync.
///
/// A tile of bf16 lies in blocks of 8 x 8, 128 bytes each, row after row of blocks: ldmatrix meets
/// no bank twice, a lane's address differs from fragment to fragment by a constant, and wgmma takes
/// the blocks as they lie. Source: PTX ISA, "Asynchronous warpgroup level matrix
/// multiply-accumulate", layouts without swizzling.

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LORATRAIN_WARPGROUP_PRODUCTS
#endif

namespace loratrain::kernels::delta {

constexpr int block_bytes = 128;
constexpr int group_threads = 128;

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

/// Keeps the compiler from moving uses of these sums over this call.
template <int n>
__device__ __forceinline__ void fence_sums([[maybe_unused]] float (&c)[n][4]) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
#pragma unroll
    for (int i = 0; i < 4 * n; ++i) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
#endif
}

/// Must precede products for sums that anything else has written.
template <int... n>
__device__ __forceinline__ void begin_products(float (&... sums)[n][4]) {
    (fence_sums(sums), ...);
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
/// Makes the products since the last call a group.
__device__ __forceinline__ void commit_products() {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
/// Returns when at most the last `groups` groups are under way, and with them these sums are done.
template <int groups, int... n>
__device__ __forceinline__ void wait_for_products(float (&... sums)[n][4]) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(groups) : "memory");
#endif
    (fence_sums(sums), ...);
}
/// Makes this thread's writes to shared memory visible to products behind the next barrier.
__device__ __forceinline__ void show_to_products() {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

#ifdef LORATRAIN_WARPGROUP_PRODUCTS

/// Descriptor of a right operand whose neighbouring blocks are `leading` bytes apart in the summed
/// dimension and `stride` bytes in the other.
__device__ __forceinline__ std::uint64_t operand_of(std::uint32_t at, int leading, int stride) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(stride / 16)) << 32U |
           static_cast<std::uint32_t>(leading / 16) << 16U | at >> 4U;
}

#define LORATRAIN_4_SUMS(c, n) "+f"((c)[n][0]), "+f"((c)[n][1]), "+f"((c)[n][2]), "+f"((c)[n][3])
#define LORATRAIN_16_SUMS(c, n)                                                         \
    LORATRAIN_4_SUMS(c, n), LORATRAIN_4_SUMS(c, (n) + 1), LORATRAIN_4_SUMS(c, (n) + 2), \
        LORATRAIN_4_SUMS(c, (n) + 3)
/// c [64, 8 n] += A B; `columns`: B is a tile [k, n], else [n, k].
template <bool columns>
__device__ __forceinline__ void multiply_group(float (&c)[8][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, add, 1, 1, %37;\n}\n"
        : LORATRAIN_16_SUMS(c, 0), LORATRAIN_16_SUMS(c, 4)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(columns ? 1 : 0));
}
template <bool columns>
__device__ __forceinline__ void multiply_group(float (&c)[16][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
        "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63"
        "}, {%64, %65, %66, %67}, %68, add, 1, 1, %69;\n}\n"
        : LORATRAIN_16_SUMS(c, 0), LORATRAIN_16_SUMS(c, 4), LORATRAIN_16_SUMS(c, 8),
          LORATRAIN_16_SUMS(c, 12)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(columns ? 1 : 0));
}
/// The same with A in shared memory; `transposed`: a tile [k, m].
template <bool transposed, bool columns>
__device__ __forceinline__ void multiply_group(float (&c)[4][4], std::uint64_t a, std::uint64_t b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, %16, %17, add, 1, 1, %18, %19;\n}\n"
        : LORATRAIN_16_SUMS(c, 0)
        : "l"(a), "l"(b), "n"(transposed ? 1 : 0), "n"(columns ? 1 : 0));
}
template <bool transposed, bool columns>
__device__ __forceinline__ void multiply_group(float (&c)[8][4], std::uint64_t a, std::uint64_t b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, add, 1, 1, %34, %35;\n}\n"
        : LORATRAIN_16_SUMS(c, 0), LORATRAIN_16_SUMS(c, 4)
        : "l"(a), "l"(b), "n"(transposed ? 1 : 0), "n"(columns ? 1 : 0));
}
#undef LORATRAIN_4_SUMS
#undef LORATRAIN_16_SUMS

#endif

/// A left operand in shared memory: 16 columns of a tile [64, cols], or `transposed` 64 columns of
/// 16 rows. `at`: its first block.
template <int cols, bool transposed = false>
struct Left {
    std::uint32_t at;

    __device__ __forceinline__ void load([[maybe_unused]] std::uint32_t (&a)[4],
                                         [[maybe_unused]] int warp, int lane) const {
        if constexpr (transposed) {
            load_fragments_transposed(a, at + block_at<cols>(0, 2 * warp) + cols_first<cols>(lane));
        } else {
            load_fragments(a, at + block_at<cols>(2 * warp, 0) + rows_first<cols>(lane));
        }
    }
};

/// c += a Xᵀ for 16 columns of 8 n rows of a tile of `cols` columns; `tile`: the first block.
template <int cols, int n>
__device__ __forceinline__ void add_rows(float (&c)[n][4], const std::uint32_t (&a)[4],
                                         std::uint32_t tile, [[maybe_unused]] int lane) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    multiply_group<false>(c, a, operand_of(tile, block_bytes, block_at<cols>(1, 0)));
#else
    const std::uint32_t at = tile + cols_first<cols>(lane);
#pragma unroll
    for (int i = 0; i < n; i += 2) {
        std::uint32_t b[4];
        load_fragments(b, at + block_at<cols>(i, 0));
        multiply(c[i], a, b[0], b[1]);
        multiply(c[i + 1], a, b[2], b[3]);
    }
#endif
}

/// c += a X for 16 rows of 8 n columns of a tile.
template <int cols, int n>
__device__ __forceinline__ void add_columns(float (&c)[n][4], const std::uint32_t (&a)[4],
                                            std::uint32_t tile, [[maybe_unused]] int lane) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    multiply_group<true>(c, a, operand_of(tile, block_at<cols>(1, 0), block_bytes));
#else
    const std::uint32_t at = tile + rows_first<cols>(lane);
#pragma unroll
    for (int i = 0; i < n; i += 2) {
        std::uint32_t b[4];
        load_fragments_transposed(b, at + block_at<cols>(0, i));
        multiply(c[i], a, b[0], b[1]);
        multiply(c[i + 1], a, b[2], b[3]);
    }
#endif
}

#ifdef LORATRAIN_WARPGROUP_PRODUCTS
template <int cols, bool transposed>
__device__ __forceinline__ std::uint64_t operand_of(const Left<cols, transposed>& a) {
    return transposed ? operand_of(a.at, block_at<cols>(1, 0), block_bytes)
                      : operand_of(a.at, block_bytes, block_at<cols>(1, 0));
}
#endif

template <int cols, int of_left, bool transposed, int n>
__device__ __forceinline__ void add_rows(float (&c)[n][4], const Left<of_left, transposed>& left,
                                         std::uint32_t tile, [[maybe_unused]] int warp,
                                         [[maybe_unused]] int lane) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    multiply_group<transposed, false>(c, operand_of(left),
                                      operand_of(tile, block_bytes, block_at<cols>(1, 0)));
#else
    std::uint32_t a[4];
    left.load(a, warp, lane);
    add_rows<cols>(c, a, tile, lane);
#endif
}

template <int cols, int of_left, bool transposed, int n>
__device__ __forceinline__ void add_columns(float (&c)[n][4], const Left<of_left, transposed>& left,
                                            std::uint32_t tile, [[maybe_unused]] int warp,
                                            [[maybe_unused]] int lane) {
#ifdef LORATRAIN_WARPGROUP_PRODUCTS
    multiply_group<transposed, true>(c, operand_of(left),
                                     operand_of(tile, block_at<cols>(1, 0), block_bytes));
#else
    std::uint32_t a[4];
    left.load(a, warp, lane);
    add_columns<cols>(c, a, tile, lane);
#endif
}

}  // namespace loratrain::kernels::delta

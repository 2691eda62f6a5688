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

__device__ __forceinline__ void commit_pieces() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// All but the last `pending` committed groups of this thread have arrived.
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

/// Transposes an 8 x 8 block of 16-bit elements held as lane -> row lane/4, columns
/// 2(lane%4)+{0,1}.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t block) {
    std::uint32_t result = 0;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(block));
    return result;
}

}  // namespace loratrain::kernels

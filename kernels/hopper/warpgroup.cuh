#pragma once

#include <cstdint>

/// Pieces of kernels with Hopper's warpgroup products (wgmma, code for sm_90a). A warpgroup is 128
/// threads; its products run asynchronously and read operands from shared memory. Source: PTX ISA,
/// "Asynchronous warpgroup level matrix multiply-accumulate".

namespace loratrain::kernels {

constexpr int warpgroup_threads = 128;

/// A tile of bf16 in shared memory: rows of 64 columns (128 bytes) whose 16-byte pieces are xor-ed
/// with the row's last three bits. It starts at a multiple of 1024. Wider tiles are several panels.
constexpr int panel_columns = 64;
constexpr int panel_row_bytes = 128;

/// Offset in a panel of the 8 columns from 8 * `piece` on.
__device__ __forceinline__ std::uint32_t panel_offset(int row, int piece) {
    return row * panel_row_bytes + ((piece ^ (row & 7)) << 4);
}

/// The low word of the descriptor of an operand in a panel at `address`; n bytes further it is n /
/// 16 more. If the operand's columns are not the summed dimension, the next 64 columns are
/// `next_panel` bytes ahead.
__device__ __forceinline__ std::uint32_t panel_operand(std::uint32_t address,
                                                       std::uint32_t next_panel = 16) {
    return next_panel / 16 << 16U | address >> 4U;
}

/// The high word of all descriptors: 8 rows of 128 bytes repeat, pieces are xor-ed.
constexpr std::uint32_t panel_layout = 1U << 30U | 8 * panel_row_bytes / 16;

/// Must precede products whose registers anything else has written.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
/// Makes the products since the last call a group.
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
/// Returns when at most the last `groups` groups are under way.
template <int groups>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(groups) : "memory");
}
/// Keeps the compiler from moving uses of these sums before this call.
template <int n>
__device__ __forceinline__ void use_products(float (&d)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Operands of sums in instructions, with `access` "=" or "+"; their places come first.
#define LORATRAIN_8_SUMS(access, d, at)                                                  \
    access "f"((d)[at]), access "f"((d)[(at) + 1]), access "f"((d)[(at) + 2]),           \
        access "f"((d)[(at) + 3]), access "f"((d)[(at) + 4]), access "f"((d)[(at) + 5]), \
        access "f"((d)[(at) + 6]), access "f"((d)[(at) + 7])
#define LORATRAIN_32_SUMS(access, d, at)                                    \
    LORATRAIN_8_SUMS(access, d, at), LORATRAIN_8_SUMS(access, d, (at) + 8), \
        LORATRAIN_8_SUMS(access, d, (at) + 16), LORATRAIN_8_SUMS(access, d, (at) + 24)
#define LORATRAIN_64_SUMS(access, d) \
    LORATRAIN_32_SUMS(access, d, 0), LORATRAIN_32_SUMS(access, d, 32)
#define LORATRAIN_96_SUMS(access, d) LORATRAIN_64_SUMS(access, d), LORATRAIN_32_SUMS(access, d, 64)
#define LORATRAIN_128_SUMS(access, d)                                  \
    LORATRAIN_32_SUMS(access, d, 0), LORATRAIN_32_SUMS(access, d, 32), \
        LORATRAIN_32_SUMS(access, d, 64), LORATRAIN_32_SUMS(access, d, 96)
#define LORATRAIN_32_PLACES                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LORATRAIN_64_PLACES                                                              \
    LORATRAIN_32_PLACES                                                                  \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LORATRAIN_96_PLACES                                                              \
    LORATRAIN_64_PLACES                                                                  \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LORATRAIN_128_PLACES                                                                       \
    LORATRAIN_64_PLACES                                                                            \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
    "%127"

/// Products of 64 rows. Warp w has rows 16 w to 16 w + 15 of d, as mma.m16n8k16 has them; operands
/// in shared memory are panels.

/// d[64, 64] = A[64, 16] B[64, 16]ᵀ.
__device__ __forceinline__ void begin_rows(float (&d)[32], std::uint32_t a, std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, 0, 0;\n"
        "mov.b64 a, {%32, %34};\n"
        "mov.b64 b, {%33, %34};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "a, b, add, 1, 1, 0, 0;\n}\n"
        : LORATRAIN_32_SUMS("=", d, 0)
        : "r"(a), "r"(b), "n"(panel_layout));
}
/// d[64, 64] += A[64, 16] B[64, 16]ᵀ.
__device__ __forceinline__ void multiply_rows(float (&d)[32], std::uint32_t a, std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 a, {%32, %34};\n"
        "mov.b64 b, {%33, %34};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "a, b, add, 1, 1, 0, 0;\n}\n"
        : LORATRAIN_32_SUMS("+", d, 0)
        : "r"(a), "r"(b), "n"(panel_layout));
}

/// d[64, 64] += A[64, 16] B[64, 16]ᵀ with A in registers: for each warp the 16 x 16 of
/// mma.m16n8k16.
__device__ __forceinline__ void begin_rows(float (&d)[32], const std::uint32_t* a,
                                           std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 0, 0;\n"
        "mov.b64 b, {%36, %37};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "{%32, %33, %34, %35}, b, add, 1, 1, 0;\n}\n"
        : LORATRAIN_32_SUMS("=", d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}
__device__ __forceinline__ void multiply_rows(float (&d)[32], const std::uint32_t* a,
                                              std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 b, {%36, %37};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "{%32, %33, %34, %35}, b, add, 1, 1, 0;\n}\n"
        : LORATRAIN_32_SUMS("+", d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}

/// d[64, n] += A[64, 16] B[16, n], A in registers; n = 64, 128, 192, 256.
__device__ __forceinline__ void multiply_columns(float (&d)[32], const std::uint32_t* a,
                                                 std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 b, {%36, %37};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "{%32, %33, %34, %35}, b, add, 1, 1, 1;\n}\n"
        : LORATRAIN_32_SUMS("+", d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}
__device__ __forceinline__ void multiply_columns(float (&d)[64], const std::uint32_t* a,
                                                 std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 b, {%68, %69};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LORATRAIN_64_PLACES
        "}, "
        "{%64, %65, %66, %67}, b, add, 1, 1, 1;\n}\n"
        : LORATRAIN_64_SUMS("+", d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}

__device__ __forceinline__ void multiply_columns(float (&d)[96], const std::uint32_t* a,
                                                 std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 b, {%100, %101};\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" LORATRAIN_96_PLACES
        "}, "
        "{%96, %97, %98, %99}, b, add, 1, 1, 1;\n}\n"
        : LORATRAIN_96_SUMS("+", d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}
__device__ __forceinline__ void multiply_columns(float (&d)[128], const std::uint32_t* a,
                                                 std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 b, {%132, %133};\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" LORATRAIN_128_PLACES
        "}, "
        "{%128, %129, %130, %131}, b, add, 1, 1, 1;\n}\n"
        : LORATRAIN_128_SUMS("+", d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(panel_layout));
}

/// d[64, n] += A[16, 64]ᵀ B[16, n]; n = 64, 128.
__device__ __forceinline__ void multiply_transposed(float (&d)[32], std::uint32_t a,
                                                    std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 a, {%32, %34};\n"
        "mov.b64 b, {%33, %34};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LORATRAIN_32_PLACES
        "}, "
        "a, b, add, 1, 1, 1, 1;\n}\n"
        : LORATRAIN_32_SUMS("+", d, 0)
        : "r"(a), "r"(b), "n"(panel_layout));
}
__device__ __forceinline__ void multiply_transposed(float (&d)[64], std::uint32_t a,
                                                    std::uint32_t b) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, 1, 0;\n"
        "mov.b64 a, {%64, %66};\n"
        "mov.b64 b, {%65, %66};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LORATRAIN_64_PLACES
        "}, "
        "a, b, add, 1, 1, 1, 1;\n}\n"
        : LORATRAIN_64_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout));
}

/// d[64, 256] = A[64, 16] B[64, 256]ᵀ, or with `add` d += ..., both in shared memory.
__device__ __forceinline__ void multiply_rows(float (&d)[128], std::uint32_t a, std::uint32_t b,
                                              bool add) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, %131, 0;\n"
        "mov.b64 a, {%128, %130};\n"
        "mov.b64 b, {%129, %130};\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" LORATRAIN_128_PLACES
        "}, "
        "a, b, add, 1, 1, 0, 0;\n}\n"
        : LORATRAIN_128_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout), "r"(static_cast<int>(add)));
}
/// d[64, n] = A[64, 16] B[16, n], or with `add` d += ..., both in shared memory; n = 128, 256.
__device__ __forceinline__ void multiply_columns(float (&d)[64], std::uint32_t a, std::uint32_t b,
                                                 bool add) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, %67, 0;\n"
        "mov.b64 a, {%64, %66};\n"
        "mov.b64 b, {%65, %66};\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LORATRAIN_64_PLACES
        "}, "
        "a, b, add, 1, 1, 0, 1;\n}\n"
        : LORATRAIN_64_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void multiply_columns(float (&d)[128], std::uint32_t a, std::uint32_t b,
                                                 bool add) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, %131, 0;\n"
        "mov.b64 a, {%128, %130};\n"
        "mov.b64 b, {%129, %130};\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" LORATRAIN_128_PLACES
        "}, "
        "a, b, add, 1, 1, 0, 1;\n}\n"
        : LORATRAIN_128_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout), "r"(static_cast<int>(add)));
}

/// d[64, n] = A[64, 32] B[n, 32]ᵀ of e4m3 codes, or with `add` d += ..., both in shared memory; n =
/// 128, 256. A panel has 128 codes a row. Sums inside a product keep fewer bits than fp32.
__device__ __forceinline__ void multiply_code_rows(float (&d)[64], std::uint32_t a, std::uint32_t b,
                                                   bool add) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, %67, 0;\n"
        "mov.b64 a, {%64, %66};\n"
        "mov.b64 b, {%65, %66};\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" LORATRAIN_64_PLACES
        "}, "
        "a, b, add, 1, 1;\n}\n"
        : LORATRAIN_64_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void multiply_code_rows(float (&d)[128], std::uint32_t a,
                                                   std::uint32_t b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\n.reg .b64 a, b;\n"
        "setp.ne.b32 add, %131, 0;\n"
        "mov.b64 a, {%128, %130};\n"
        "mov.b64 b, {%129, %130};\n"
        "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" LORATRAIN_128_PLACES
        "}, "
        "a, b, add, 1, 1;\n}\n"
        : LORATRAIN_128_SUMS("+", d)
        : "r"(a), "r"(b), "n"(panel_layout), "r"(static_cast<int>(add)));
}

#undef LORATRAIN_8_SUMS
#undef LORATRAIN_32_SUMS
#undef LORATRAIN_64_SUMS
#undef LORATRAIN_96_SUMS
#undef LORATRAIN_128_SUMS
#undef LORATRAIN_32_PLACES
#undef LORATRAIN_64_PLACES
#undef LORATRAIN_96_PLACES
#undef LORATRAIN_128_PLACES

/// Makes this thread's writes to shared memory visible to products behind the next barrier.
__device__ __forceinline__ void show_to_products() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// A barrier in 8 bytes of shared memory, which `count` arrivals complete.
__device__ __forceinline__ void make_barrier(std::uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
/// Arrives when this thread's copies of pieces (copy_16_async) have arrived. Whoever waits for the
/// barrier calls show_to_products() before products read them.
__device__ __forceinline__ void arrive_behind_pieces(std::uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier)
                 : "memory");
}
/// Returns when the barrier was completed 1, 3, 5... times (`parity` 0), 2, 4... times (1).
__device__ __forceinline__ void wait_for(std::uint32_t barrier, std::uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
/// Barrier `number`, 1 to 15, of `threads` threads.
template <int number, int threads>
__device__ __forceinline__ void meet() {
    asm volatile("bar.sync %0, %1;\n" ::"n"(number), "n"(threads) : "memory");
}

/// Run by one thread: the barrier completes only after so many bytes of bulk copies, beside
/// arrivals.
__device__ __forceinline__ void arrive_before_copies(std::uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}
/// Copies multiples of 16 bytes; the barrier counts them.
__device__ __forceinline__ void copy_bulk(std::uint32_t target, const void* source, int bytes,
                                          std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];\n" ::"r"(target),
        "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}
/// A box of a tensor from a column, a row and a matrix on, as its map says
/// (cuTensorMapEncodeTiled); zeros beyond the tensor, which the barrier counts too.
__device__ __forceinline__ void copy_box(std::uint32_t target, const void* map, int column, int row,
                                         int matrix, std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3, %4}], [%5];\n" ::"r"(target),
        "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
        : "memory");
}
/// Copies a box from shared memory to a tensor; each call is a group of the thread.
__device__ __forceinline__ void copy_bulk_out(void* target, std::uint32_t source, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(target),
                 "r"(source), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
/// Returns when at most the last `groups` groups still read shared memory.
template <int groups>
__device__ __forceinline__ void wait_for_copies_out() {
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(groups) : "memory");
}

/// Sets the registers of each thread from here on; called by all warps of a warpgroup.
template <int registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(registers));
}

/// Stores four 8 x 8 matrices in shared memory; lane l gives the address of row l % 8 of matrix l
/// / 8.
__device__ __forceinline__ void store_fragments(std::uint32_t address, const std::uint32_t* r) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

}  // namespace loratrain::kernels

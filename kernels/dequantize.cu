#include "quantize.h"

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr int packs_at_once = 4;  ///< loads of a thread that are under way together

struct Table {
    float values[16];
};

__device__ __forceinline__ float round_weight(RoundedTo type, float value) {
    if (type == RoundedTo::bf16) return __bfloat162float(__float2bfloat16_rn(value));
    if (type == RoundedTo::f16) return __half2float(__float2half_rn(value));
    return value;
}

template <CodeFormat F>
__device__ __forceinline__ float widened(const float* table, std::uint32_t code, float scale,
                                         float int8_step) {
    if constexpr (F == CodeFormat::nf4) {
        return __fmul_rn(table[code], scale);
    } else if constexpr (F == CodeFormat::int8) {
        const auto number = static_cast<float>(static_cast<signed char>(code));
        return __fmul_rn(__fmul_rn(number, scale), int8_step);
    } else {
        __nv_fp8_e4m3 number;
        number.__x = static_cast<__nv_fp8_storage_t>(code);
        return __fmul_rn(static_cast<float>(number), scale);
    }
}

/// The codes of N consecutive weights as they lie in memory, 32 bits or 64 of N = 8.
template <CodeFormat F, int N>
__device__ __forceinline__ std::uint64_t load_codes(const unsigned char* row, std::int64_t col) {
    if constexpr (F == CodeFormat::nf4) {
        if constexpr (N == 1) return row[col / 2] >> (col % 2 == 0 ? 4 : 0) & 15;
        return *reinterpret_cast<const std::uint32_t*>(row + col / 2);
    } else {
        if constexpr (N == 1) return row[col];
        return *reinterpret_cast<const std::uint64_t*>(row + col);
    }
}

template <CodeFormat F, int N>
__device__ __forceinline__ std::uint32_t code_of(std::uint64_t codes, int i) {
    if constexpr (N == 1) return static_cast<std::uint32_t>(codes);
    if constexpr (F == CodeFormat::nf4) {
        return static_cast<std::uint32_t>(codes) >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15U;
    }
    return static_cast<std::uint32_t>(codes >> (8 * i)) & 255U;
}

/// A thread makes packs_at_once packs of N weights, a block's threads apart.
template <CodeFormat F, class T, int N>
__global__ void __launch_bounds__(block_threads)
    dequantize_packs(T* target, std::int64_t ld, std::uint32_t count, std::uint32_t per_row,
                     Codes source, Table table) {
    __shared__ float shared_table[16];
    if (F == CodeFormat::nf4) {
        if (threadIdx.x < 16) shared_table[threadIdx.x] = table.values[threadIdx.x];
        __syncthreads();
    }
    const std::uint32_t first = blockIdx.x * (block_threads * packs_at_once) + threadIdx.x;
    std::uint64_t codes[packs_at_once];
    float scale[packs_at_once];
    T* place[packs_at_once];
#pragma unroll
    for (int p = 0; p < packs_at_once; ++p) {
        const std::uint32_t i = first + p * block_threads;
        place[p] = nullptr;
        if (i >= count) continue;
        const std::uint32_t row = i / per_row;
        const std::int64_t col = static_cast<std::int64_t>(i - row * per_row) * N;
        const auto* bytes = static_cast<const unsigned char*>(source.codes);
        codes[p] = load_codes<F, N>(bytes + row * source.code_bytes, col);
        scale[p] = source.scales[row * source.scale_count + (col >> source.block_shift)];
        place[p] = target + row * ld + col;
    }
#pragma unroll
    for (int p = 0; p < packs_at_once; ++p) {
        if (place[p] == nullptr) continue;
        float v[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            v[i] = round_weight(
                source.rounded_to,
                widened<F>(shared_table, code_of<F, N>(codes[p], i), scale[p], source.int8_step));
        }
        store<N>(place[p], v);
    }
}

template <CodeFormat F, class T, int N>
cudaError_t launch_dequantize(cudaStream_t stream, const Matrix& target, const Codes& source,
                              const Table& table) {
    const std::int64_t count = target.rows * (target.cols / N);
    if (count == 0) return cudaSuccess;
    if (count > INT64_C(0xff000000)) return cudaErrorInvalidValue;
    constexpr std::int64_t per_block = block_threads * packs_at_once;
    dequantize_packs<F, T, N>
        <<<static_cast<unsigned>((count + per_block - 1) / per_block), block_threads, 0, stream>>>(
            pointer<T>(target), target.ld, static_cast<std::uint32_t>(count),
            static_cast<std::uint32_t>(target.cols / N), source, table);
    return cudaGetLastError();
}

template <CodeFormat F>
cudaError_t dequantize_as(cudaStream_t stream, const Matrix& target, const Codes& source,
                          const Table& table) {
    constexpr std::int64_t pack_bytes = F == CodeFormat::nf4 ? wide / 2 : wide;
    const bool packs = all_wide({&target}) && source.code_bytes % pack_bytes == 0 &&
                       reinterpret_cast<std::uintptr_t>(source.codes) % pack_bytes == 0;
    return with_type(target.type, [&](auto element) {
        using T = decltype(element);
        return packs ? launch_dequantize<F, T, wide>(stream, target, source, table)
                     : launch_dequantize<F, T, 1>(stream, target, source, table);
    });
}

}  // namespace

cudaError_t dequantize(cudaStream_t stream, const Matrix& target, const Codes& source,
                       const float (&table)[16]) {
    Table values;
    for (int i = 0; i < 16; ++i) values.values[i] = table[i];
    switch (source.format) {
        case CodeFormat::nf4:
            return dequantize_as<CodeFormat::nf4>(stream, target, source, values);
        case CodeFormat::int8:
            return dequantize_as<CodeFormat::int8>(stream, target, source, values);
        case CodeFormat::e4m3:
            return dequantize_as<CodeFormat::e4m3>(stream, target, source, values);
    }
    return cudaErrorInvalidValue;
}

}  // namespace loratrain::kernels

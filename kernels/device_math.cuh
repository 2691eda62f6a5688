#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "matrix.h"

namespace loratrain::kernels {

using Bf16 = __nv_bfloat16;

__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(Bf16 x) {
    return __bfloat162float(x);
}
template <class T>
__device__ __forceinline__ T from_float(float x) {
    if constexpr (sizeof(T) == 4) {
        return x;
    } else {
        return __float2bfloat16_rn(x);
    }
}

__device__ __forceinline__ float low_half(std::uint32_t pair) {
    return __uint_as_float(pair << 16U);
}
__device__ __forceinline__ float high_half(std::uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000U);
}
__device__ __forceinline__ std::uint32_t pack_halves(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Elements that one thread moves at once: 8, or 1 if an operand is ragged.
constexpr int wide = 8;

/// N = wide needs an address that is a multiple of 16 bytes.
template <int N>
__device__ __forceinline__ void load(const float* x, float (&v)[N]) {
    if constexpr (N == 1) {
        v[0] = *x;
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 part = *reinterpret_cast<const float4*>(x + i);
            v[i] = part.x;
            v[i + 1] = part.y;
            v[i + 2] = part.z;
            v[i + 3] = part.w;
        }
    }
}
template <int N>
__device__ __forceinline__ void load(const Bf16* x, float (&v)[N]) {
    if constexpr (N == 1) {
        v[0] = __bfloat162float(*x);
    } else {
        const uint4 part = *reinterpret_cast<const uint4*>(x);
        const std::uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            v[2 * i] = low_half(words[i]);
            v[2 * i + 1] = high_half(words[i]);
        }
    }
}
template <int N>
__device__ __forceinline__ void store(float* x, const float (&v)[N]) {
    if constexpr (N == 1) {
        *x = v[0];
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            *reinterpret_cast<float4*>(x + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
        }
    }
}
template <int N>
__device__ __forceinline__ void store(Bf16* x, const float (&v)[N]) {
    if constexpr (N == 1) {
        *x = __float2bfloat16_rn(v[0]);
    } else {
        *reinterpret_cast<uint4*>(x) = make_uint4(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]),
                                                  pack_halves(v[4], v[5]), pack_halves(v[6], v[7]));
    }
}

/// Stores with one instruction. If another branch stores the same place piece by piece, the
/// compiler would otherwise do so in both branches, and each piece would be a write to the L2.
__device__ __forceinline__ void store_at_once(void* x, const uint4& v) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(__cvta_generic_to_global(x)),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

constexpr float log2_e = 1.44269504088896341F;

/// 2^x by the special function unit; 0 below 2^-126.
__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

/// e^x: exact to the last digits for fp32, by the special function unit for results in bf16.
template <class T>
__device__ __forceinline__ float exponential(float x) {
    return sizeof(T) == 4 ? expf(x) : exp2_fast(log2_e * x);
}
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
    const float below = 1.0F + exponential<T>(-x);
    return sizeof(T) == 4 ? 1.0F / below : __fdividef(1.0F, below);
}

/// tanh x: exact to the last digits for fp32, to about 1e-6 for results in bf16.
template <class T>
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    if constexpr (sizeof(T) == 4) {
        return tanhf(x);
    } else {
        return 1.0F - __fdividef(2.0F, 1.0F + exp2_fast(2.0F * log2_e * x));
    }
}

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, offset);
    }
    return value;
}

/// Sum over the four lanes that have a row of a tensor core's sums.
__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffffU, value, 1);
    value += __shfl_xor_sync(0xffffffffU, value, 2);
    return value;
}

/// Sum over a block of whole warps; every thread gets it. `scratch` holds one T per warp.
template <class T>
__device__ __forceinline__ T block_sum(T value, T* scratch) {
    const unsigned warp = threadIdx.x / 32U;
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32U == 0) scratch[warp] = value;
    __syncthreads();
    T total = scratch[0];
    for (unsigned i = 1; i < blockDim.x / 32U; ++i) total += scratch[i];
    return total;
}

}  // namespace loratrain::kernels

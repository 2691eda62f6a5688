#pragma once

#include <cuda_fp8.h>

#include "device_math.cuh"

namespace loratrain::kernels {

/// What a row of e4m3 codes is made with: its scale, and the number its values are multiplied by.
struct RowCoding {
    float scale;
    float inverse;
};

/// As row_coding of base/e4m3.h, of the bits of the row's largest magnitude. Compared as bits, NaN
/// is above infinity, and infinity above all numbers.
__device__ __forceinline__ RowCoding row_coding(std::uint32_t largest_bits) {
    constexpr std::uint32_t infinity = 0x7f800000U;
    constexpr float least = 1.17549435e-38F;
    if (largest_bits >= infinity) {
        const float nan = __uint_as_float(0x7fffffffU);
        return {nan, nan};
    }
    if (largest_bits == 0) return {1.0F, 1.0F};
    const float scale = fmaxf(__fdiv_rn(__uint_as_float(largest_bits), 448.0F), least);
    return {scale, __frcp_rn(scale)};
}

__device__ __forceinline__ std::uint32_t magnitude_bits(float value) {
    return __float_as_uint(value) & 0x7fffffffU;
}

/// The largest of a block of whole warps; every thread gets it. `scratch` holds one per warp.
__device__ __forceinline__ std::uint32_t block_max(std::uint32_t value, std::uint32_t* scratch) {
    value = __reduce_max_sync(0xffffffffU, value);
    __syncthreads();
    if (threadIdx.x % 32U == 0) scratch[threadIdx.x / 32U] = value;
    __syncthreads();
    std::uint32_t largest = scratch[0];
    for (unsigned i = 1; i < blockDim.x / 32U; ++i) largest = max(largest, scratch[i]);
    return largest;
}

__device__ __forceinline__ std::uint32_t two_codes(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/// Codes of N values times `inverse`; N = wide needs an address that is a multiple of 8 bytes.
template <int N>
__device__ __forceinline__ void store_codes(std::uint8_t* to, const float (&v)[N], float inverse) {
    if constexpr (N == 1) {
        *to = __nv_cvt_float_to_fp8(v[0] * inverse, __NV_SATFINITE, __NV_E4M3);
    } else {
        const auto two = [&](int i) { return two_codes(v[i] * inverse, v[i + 1] * inverse); };
        *reinterpret_cast<uint2*>(to) = make_uint2(two(0) | two(2) << 16U, two(4) | two(6) << 16U);
    }
}

}  // namespace loratrain::kernels

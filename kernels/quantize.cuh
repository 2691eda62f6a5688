#pragma once

#include <cuda_fp8.h>

#include "launch.cuh"
#include "quantize.h"

namespace loratrain::kernels {

/// Coding of a row of e4m3 codes: its scale, and the factor of its values.
struct RowCoding {
    float scale;
    float inverse;
};

/// row_coding() of base/e4m3.h, from the bits of the row's largest magnitude. Compared as bits, NaN
/// is larger than infinity, and infinity larger than all numbers.
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

/// The largest value of a block of whole warps, in every thread. `scratch` holds one value per
/// warp.
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

/// Fp8Codes of N values times `inverse`; N = wide needs an address that is a multiple of 8 bytes.
template <int N>
__device__ __forceinline__ void store_codes(std::uint8_t* to, const float (&v)[N], float inverse) {
    if constexpr (N == 1) {
        *to = __nv_cvt_float_to_fp8(v[0] * inverse, __NV_SATFINITE, __NV_E4M3);
    } else {
        const auto two = [&](int i) { return two_codes(v[i] * inverse, v[i + 1] * inverse); };
        *reinterpret_cast<uint2*>(to) = make_uint2(two(0) | two(2) << 16U, two(4) | two(6) << 16U);
    }
}

/// True if store_codes() can write `to`, and read the scales, `wide` at a time.
inline bool takes_wide_codes(const Fp8Codes& to, const float* column_scales) {
    return to.ld % wide == 0 && to.cols % wide == 0 &&
           reinterpret_cast<std::uintptr_t>(to.codes) % wide == 0 && aligned_16(column_scales);
}

/// A thread's part of a row that `lanes` threads share (a warp or the whole block): values as
/// stored, `wide` in each pass over the row.
template <class T, int lanes, int passes>
class HeldRow {
  public:
    __device__ static int lane() {
        const auto thread = static_cast<int>(threadIdx.x);
        return lanes == 32 ? thread % 32 : thread;
    }
    __device__ static std::int64_t column(int pass) { return (pass * lanes + lane()) * wide; }
    __device__ void take(int pass, const T* from) {
#pragma unroll
        for (int i = 0; i < words; ++i) held_[pass][i] = reinterpret_cast<const uint4*>(from)[i];
    }
    /// Rounds them to T.
    __device__ void take(int pass, const float (&v)[wide]) {
        store<wide>(reinterpret_cast<T*>(held_[pass]), v);
    }
    __device__ void give(int pass, T* to) const {
#pragma unroll
        for (int i = 0; i < words; ++i) reinterpret_cast<uint4*>(to)[i] = held_[pass][i];
    }
    /// Factors of the thread's columns, for many rows.
    struct Scales {
        float of[passes][wide];
        __device__ void load(const float* column_scales, std::int64_t cols) {
#pragma unroll
            for (int pass = 0; pass < passes; ++pass) {
                if (column(pass) >= cols) break;
                kernels::load<wide>(column_scales + column(pass), of[pass]);
            }
        }
    };

    /// `scales`: Scales, or factors of all columns in memory, null = 1.
    template <class From>
    __device__ void values(int pass, const From& scales, float (&v)[wide]) const {
        load<wide>(reinterpret_cast<const T*>(held_[pass]), v);
        multiply(pass, scales, v);
    }

    /// Bits of the largest magnitude among this thread's values of the row, which has `cols`.
    template <class From>
    __device__ std::uint32_t largest(std::int64_t cols, const From& scales) const {
        std::uint32_t bits = 0;
#pragma unroll
        for (int pass = 0; pass < passes; ++pass) {
            if (column(pass) >= cols) break;
            float v[wide];
            values(pass, scales, v);
#pragma unroll
            for (int i = 0; i < wide; ++i) bits = max(bits, magnitude_bits(v[i]));
        }
        return bits;
    }
    template <class From>
    __device__ void store_row(std::int64_t cols, const From& scales, std::uint8_t* codes,
                              float inverse) const {
#pragma unroll
        for (int pass = 0; pass < passes; ++pass) {
            if (column(pass) >= cols) break;
            float v[wide];
            values(pass, scales, v);
            store_codes<wide>(codes + column(pass), v, inverse);
        }
    }
    /// Quantises the whole row, by the row's lanes; `scratch`: one value per warp of the block.
    template <class From>
    __device__ void write_codes(std::int64_t cols, const From& scales, const Fp8Codes& to,
                                std::int64_t row, std::uint32_t* scratch) const {
        const std::uint32_t own = largest(cols, scales);
        const RowCoding coding =
            row_coding(lanes == 32 ? __reduce_max_sync(0xffffffffU, own) : block_max(own, scratch));
        store_row(cols, scales, to.codes + row * to.ld, coding.inverse);
        if (lane() == 0) to.scales[row] = coding.scale;
    }

  private:
    __device__ static void multiply(int pass, const float* column_scales, float (&v)[wide]) {
        if (column_scales == nullptr) return;
        float s[wide];
        load<wide>(column_scales + column(pass), s);
#pragma unroll
        for (int i = 0; i < wide; ++i) v[i] *= s[i];
    }
    __device__ static void multiply(int pass, const Scales& scales, float (&v)[wide]) {
#pragma unroll
        for (int i = 0; i < wide; ++i) v[i] *= scales.of[pass][i];
    }

    static constexpr int words = sizeof(T) * wide / 16;
    uint4 held_[passes][words];
};

}  // namespace loratrain::kernels

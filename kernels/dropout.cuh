#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace loratrain::kernels {

/// Constants and one multiplication of Philox4x32 (Salmon et al., SC11).
struct PhiloxProduct {
    std::uint32_t high;
    std::uint32_t low;
};

__device__ __forceinline__ PhiloxProduct philox_product(std::uint32_t a, std::uint32_t b) {
    const std::uint64_t product = static_cast<std::uint64_t>(a) * b;
    return {static_cast<std::uint32_t>(product >> 32U), static_cast<std::uint32_t>(product)};
}

constexpr std::uint32_t philox_m0 = 0xD2511F53U;
constexpr std::uint32_t philox_m1 = 0xCD9E8D57U;
constexpr std::uint32_t philox_w0 = 0x9E3779B9U;
constexpr std::uint32_t philox_w1 = 0xBB67AE85U;

/// The rounds first .. last - 1.
template <int first, int last>
__device__ __forceinline__ uint4 philox_rounds(uint4 counter, std::uint64_t key) {
    auto k0 = static_cast<std::uint32_t>(key) + first * philox_w0;
    auto k1 = static_cast<std::uint32_t>(key >> 32U) + first * philox_w1;
#pragma unroll
    for (int round = first; round < last; ++round) {
        const PhiloxProduct p0 = philox_product(philox_m0, counter.x);
        const PhiloxProduct p1 = philox_product(philox_m1, counter.z);
        counter = make_uint4(p1.high ^ counter.y ^ k0, p1.low, p0.high ^ counter.w ^ k1, p0.low);
        k0 += philox_w0;
        k1 += philox_w1;
    }
    return counter;
}

/// Philox4x32 with 10 rounds; bit for bit base/rng.h philox4x32.
__device__ __forceinline__ uint4 philox4x32(uint4 counter, std::uint64_t key) {
    return philox_rounds<0, 10>(counter, key);
}

/// Dropout draws with 7 rounds (base/rng.h dropout_bits). After two of them, one part of the
/// counter depends on the row alone and one on the columns alone, so that many rows and columns
/// share them.
constexpr int dropout_rounds = 7;

/// What a row contributes to the counter after two rounds (w is unused).
__device__ __forceinline__ uint4 dropout_row(std::uint64_t key, std::uint32_t sample,
                                             std::uint32_t position) {
    const auto k0 = static_cast<std::uint32_t>(key);
    const auto k1 = static_cast<std::uint32_t>(key >> 32U);
    const PhiloxProduct first = philox_product(philox_m1, sample);
    const PhiloxProduct second = philox_product(philox_m0, first.high ^ position ^ k0);
    return make_uint4(first.low, second.high ^ (k1 + philox_w1), second.low, 0);
}

/// What 8 columns contribute to it (w is unused).
__device__ __forceinline__ uint4 dropout_column(std::uint64_t key, std::uint32_t step,
                                                std::uint32_t column_block) {
    const auto k0 = static_cast<std::uint32_t>(key);
    const auto k1 = static_cast<std::uint32_t>(key >> 32U);
    const PhiloxProduct first = philox_product(philox_m0, column_block);
    const PhiloxProduct second = philox_product(philox_m1, first.high ^ step ^ k1);
    return make_uint4(second.high ^ (k0 + philox_w0), second.low, first.low, 0);
}

/// The bits of base/rng.h dropout_bits, with a 16th random bit before each 15.
__device__ __forceinline__ uint4 dropout_bits(std::uint64_t key, const uint4& row,
                                              const uint4& column) {
    return philox_rounds<2, dropout_rounds>(
        make_uint4(column.x ^ row.x, column.y, row.y ^ column.z, row.z), key);
}

__device__ __forceinline__ float dropout_scale(std::uint32_t threshold) {
    return 32768.0F / static_cast<float>(32768U - threshold);
}

/// All ones in each 16-bit half whose lower 15 bits are not below the threshold. Read as fp16
/// without a sign, the bits order as numbers; those past infinity are kept, as no threshold is
/// larger (base/rng.h largest_dropout).
__device__ __forceinline__ std::uint32_t kept_halves(std::uint32_t bits, std::uint32_t threshold) {
    const std::uint32_t both = threshold | threshold << 16U;
    return __hgeu2_mask(__habs2(*reinterpret_cast<const __half2*>(&bits)),
                        *reinterpret_cast<const __half2*>(&both));
}

/// Zeroes the dropped elements of 8 columns of bf16.
__device__ __forceinline__ uint4 masked(const uint4& x, const uint4& bits,
                                        std::uint32_t threshold) {
    return make_uint4(x.x & kept_halves(bits.x, threshold), x.y & kept_halves(bits.y, threshold),
                      x.z & kept_halves(bits.z, threshold), x.w & kept_halves(bits.w, threshold));
}

}  // namespace loratrain::kernels

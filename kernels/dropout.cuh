#pragma once

#include <cstdint>

namespace loratrain::kernels {

/// Philox4x32 with 10 rounds; bit for bit base/rng.h philox4x32.
__device__ __forceinline__ uint4 philox4x32(uint4 counter, std::uint64_t key) {
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32U);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const std::uint32_t high0 = __umulhi(0xD2511F53U, counter.x);
        const std::uint32_t low0 = 0xD2511F53U * counter.x;
        const std::uint32_t high1 = __umulhi(0xCD9E8D57U, counter.z);
        const std::uint32_t low1 = 0xCD9E8D57U * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ k0, low1, high0 ^ counter.w ^ k1, low0);
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return counter;
}

/// The 8 x 16 random bits of columns 8c .. 8c+7 (base/rng.h dropout_bits): word w holds columns
/// 8c+2w (low half) and 8c+2w+1 (high half).
__device__ __forceinline__ uint4 dropout_bits(std::uint64_t key, std::uint32_t step,
                                              std::uint32_t sample, std::uint32_t position,
                                              std::uint32_t column_block) {
    return philox4x32(make_uint4(column_block, position, sample, step), key);
}

__device__ __forceinline__ float dropout_scale(std::uint32_t threshold) {
    return threshold == 0 ? 1.0F : 65536.0F / static_cast<float>(65536U - threshold);
}

/// All ones in each 16-bit half whose random bits keep the element.
__device__ __forceinline__ std::uint32_t kept_halves(std::uint32_t bits, std::uint32_t threshold) {
    return __vcmpgeu2(bits, threshold | threshold << 16U);
}

}  // namespace loratrain::kernels

#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace loratrain::kernels {

/// Constants and one multiplication of Philox4x32 (Salmon et al., SC11).
struct PhiloxProduct {
    std::uint32_t high;
    std::uint32_t low;
};

/// A product in PTX: from C++, nvcc adds zero to its high word.
__device__ __forceinline__ PhiloxProduct philox_product(std::uint32_t a, std::uint32_t b) {
    std::uint64_t product = 0;
    asm("mul.wide.u32 %0, %1, %2;\n" : "=l"(product) : "r"(a), "r"(b));
    return {static_cast<std::uint32_t>(product >> 32U), static_cast<std::uint32_t>(product)};
}

constexpr std::uint32_t philox_m0 = 0xD2511F53U;
constexpr std::uint32_t philox_m1 = 0xCD9E8D57U;
constexpr std::uint32_t philox_w0 = 0x9E3779B9U;
constexpr std::uint32_t philox_w1 = 0xBB67AE85U;

/// The two words of a round's key.
__device__ __forceinline__ uint2 philox_key(std::uint64_t key, std::uint32_t round) {
    return make_uint2(static_cast<std::uint32_t>(key) + round * philox_w0,
                      static_cast<std::uint32_t>(key >> 32U) + round * philox_w1);
}

__device__ __forceinline__ uint4 philox_round(const uint4& counter, std::uint32_t k0,
                                              std::uint32_t k1) {
    const PhiloxProduct p0 = philox_product(philox_m0, counter.x);
    const PhiloxProduct p1 = philox_product(philox_m1, counter.z);
    return make_uint4(p1.high ^ counter.y ^ k0, p1.low, p0.high ^ counter.w ^ k1, p0.low);
}

/// Philox4x32 with 10 rounds; bit for bit base/rng.h philox4x32.
__device__ __forceinline__ uint4 philox4x32(uint4 counter, std::uint64_t key) {
#pragma unroll
    for (std::uint32_t round = 0; round < 10; ++round) {
        const uint2 of_round = philox_key(key, round);
        counter = philox_round(counter, of_round.x, of_round.y);
    }
    return counter;
}

/// Dropout draws with 7 rounds (base/rng.h dropout_bits). After two of them, one part of the
/// counter depends on the row alone and one on the columns alone, so that many rows and columns
/// share them. The third round's key is in those parts.
constexpr int dropout_rounds = 7;

/// What a row contributes to the counter after two rounds (w is unused).
__device__ __forceinline__ uint4 dropout_row(std::uint64_t key, std::uint32_t sample,
                                             std::uint32_t position) {
    const PhiloxProduct first = philox_product(philox_m1, sample);
    const PhiloxProduct second =
        philox_product(philox_m0, first.high ^ position ^ philox_key(key, 0).x);
    return make_uint4(first.low, second.high ^ philox_key(key, 1).y,
                      second.low ^ philox_key(key, 2).y, 0);
}

/// What 8 columns contribute to the counter after two rounds (w is unused).
__device__ __forceinline__ uint4 dropout_column(std::uint64_t key, std::uint32_t step,
                                                std::uint32_t column_block) {
    const PhiloxProduct first = philox_product(philox_m0, column_block);
    const PhiloxProduct second =
        philox_product(philox_m1, first.high ^ step ^ philox_key(key, 0).y);
    return make_uint4(second.high ^ philox_key(key, 1).x, second.low ^ philox_key(key, 2).x,
                      first.low, 0);
}

/// The keys of the rounds after the third, in pairs of rounds. Kernels read them from shared
/// memory, since the compiler would compute them again for every draw.
struct DropoutKeys {
    uint4 pairs[(dropout_rounds - 3) / 2];
};

__device__ __forceinline__ DropoutKeys dropout_keys(std::uint64_t key) {
    DropoutKeys keys{};
#pragma unroll
    for (std::uint32_t i = 0; i < (dropout_rounds - 3) / 2; ++i) {
        const uint2 first = philox_key(key, 3 + 2 * i);
        const uint2 second = philox_key(key, 4 + 2 * i);
        keys.pairs[i] = make_uint4(first.x, first.y, second.x, second.y);
    }
    return keys;
}

/// The bits of base/rng.h dropout_bits, with a 16th random bit before each 15.
__device__ __forceinline__ uint4 dropout_bits(const DropoutKeys& keys, const uint4& row,
                                              const uint4& column) {
    uint4 counter =
        philox_round(make_uint4(column.x ^ row.x, column.y, row.y ^ column.z, row.z), 0, 0);
#pragma unroll
    for (const uint4& pair : keys.pairs) {
        counter = philox_round(counter, pair.x, pair.y);
        counter = philox_round(counter, pair.z, pair.w);
    }
    return counter;
}

__device__ __forceinline__ uint4 dropout_bits(std::uint64_t key, const uint4& row,
                                              const uint4& column) {
    return dropout_bits(dropout_keys(key), row, column);
}

__device__ __forceinline__ float dropout_scale(std::uint32_t threshold) {
    return 32768.0F / static_cast<float>(32768U - threshold);
}

/// A mask with all ones in each 16-bit half whose lower 15 bits are not below the threshold. As
/// fp16 numbers without a sign, the bits have the same order. Bits beyond infinity are kept, since
/// no threshold is larger (largest_dropout in base/rng.h).
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

/// first += scale * a if dropout keeps the low half; second += scale * b if it keeps the high half.
__device__ __forceinline__ void add_kept(std::uint32_t bits, std::uint32_t threshold, float scale,
                                         float a, float b, float& first, float& second) {
    asm("{\n\t.reg .pred low, high;\n\t.reg .b32 random;\n\t"
        "abs.f16x2 random, %2;\n\t"
        "setp.geu.f16x2 low|high, random, %3;\n\t"
        "@low fma.rn.f32 %0, %4, %5, %0;\n\t"
        "@high fma.rn.f32 %1, %4, %6, %1;\n\t}\n"
        : "+f"(first), "+f"(second)
        : "r"(bits), "r"(threshold | threshold << 16U), "f"(scale), "f"(a), "f"(b));
}

}  // namespace loratrain::kernels

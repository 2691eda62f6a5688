#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace loratrain {

/// 8-bit floating point E4M3 ("fn" of torch, OCP OFP8): 1 bit of sign, 4 of exponent with bias 7, 3
/// of mantissa; subnormals in steps of 2^-9; no infinity; 0x7f and 0xff are NaN.
inline constexpr float largest_e4m3 = 448.0F;
inline constexpr std::uint8_t e4m3_nan = 0x7f;

/// The number that a code stands for; exact in fp32 and in bf16.
constexpr float from_e4m3(std::uint8_t code) {
    const std::uint32_t sign = (code & 0x80U) << 24U;
    const std::uint32_t magnitude = code & 0x7fU;
    if (magnitude == e4m3_nan) return std::numeric_limits<float>::quiet_NaN();
    if (magnitude < 8) {
        const float value = static_cast<float>(magnitude) * 0x1p-9F;
        return sign == 0 ? value : -value;
    }
    constexpr std::uint32_t bias_difference = 127 - 7;
    return std::bit_cast<float>(sign | ((magnitude << 20U) + (bias_difference << 23U)));
}

/// Rounds to nearest even, as cvt.rn.satfinite of GPUs. Numbers beyond ±448 and infinities become
/// ±448; every NaN becomes 0x7f.
constexpr std::uint8_t to_e4m3(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24U) & 0x80U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return e4m3_nan;
    if (magnitude >= std::bit_cast<std::uint32_t>(largest_e4m3)) {
        return static_cast<std::uint8_t>(sign | 0x7eU);
    }
    if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6F)) {
        // The last place of 2^14 is the step of the subnormals.
        const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
        const std::uint32_t steps =
            std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14F);
        return static_cast<std::uint8_t>(sign | steps);
    }
    constexpr std::uint32_t bias_difference = 127 - 7;
    const std::uint32_t rounded = (magnitude + 0x7ffffU + ((magnitude >> 20U) & 1U)) >> 20U;
    return static_cast<std::uint8_t>(sign | (rounded - (bias_difference << 3U)));
}

/// Scale of a row of codes.
struct RowCoding {
    float scale = 1.0F;    ///< a code stands for from_e4m3(code) * scale
    float inverse = 1.0F;  ///< code = to_e4m3(value * inverse)
};

/// Scale of a row with this largest magnitude: largest / 448, at least the smallest normal number.
/// A row of zeros has scale 1. A row that is not finite has scale NaN, and so NaN in all its codes.
inline RowCoding row_coding(float largest) {
    using Limits = std::numeric_limits<float>;
    if (!(largest <= Limits::max())) return {Limits::quiet_NaN(), Limits::quiet_NaN()};
    if (largest == 0.0F) return {};
    const float scale = std::max(largest / largest_e4m3, Limits::min());
    return {scale, 1.0F / scale};
}

}  // namespace loratrain

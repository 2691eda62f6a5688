#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace loratrain {

/// Element types of tensors. bf16 is stored as its 16 bits.
enum class DType : std::uint8_t { f32, bf16 };

constexpr std::size_t size_of(DType dtype) {
    return dtype == DType::f32 ? 4 : 2;
}

inline std::string to_string(DType dtype) {
    return dtype == DType::f32 ? "fp32" : "bf16";
}

/// A bfloat16 number: the upper 16 bits of a float.
struct BFloat16 {
    std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// Rounds to nearest even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
    }
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

}  // namespace loratrain

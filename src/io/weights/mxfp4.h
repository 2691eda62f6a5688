#pragma once

#include <cstdint>
#include <span>

namespace loratrain {

/// MXFP4 (OCP Microscaling Formats 1.0), as gpt_oss has it: 32 weights of one output are 16 bytes
/// of codes, the first of two in the low half, and an exponent. A weight is
/// mxfp4_values[code] 2^(exponent - 127), which bf16 holds; the exponent 255 makes it nan.
inline constexpr std::int64_t mxfp4_block = 32;
inline constexpr std::int64_t mxfp4_block_bytes = mxfp4_block / 2;

/// The weights of a block [32].
void decode_mxfp4(const std::uint8_t* codes, std::uint8_t exponent, float* target);

/// Codes [16] of a block [32] of finite weights; returns the exponent: that of the smallest power
/// of two s for which no weight is beyond 6 s, as quantisers of gpt_oss choose it (Triton's
/// downcast_to_mxfp). A code is that of the nearest number, of two equally near ones the one whose
/// code is even. Weights that decode_mxfp4() gives come back as they were. Zeros alone: exponent 0.
std::uint8_t encode_mxfp4(std::span<const float> weights, std::uint8_t* codes);

}  // namespace loratrain

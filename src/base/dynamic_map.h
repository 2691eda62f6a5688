#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace loratrain {

/// The 8-bit numbers of bitsandbytes' optimizer states, ascending by code in [-1, 1]: signs, powers
/// of ten from 1e-6 on and, the larger the power, the more bits for what is between 0.1 and 1 of
/// it. To the bit those of create_dynamic_map (Dettmers 2015, arXiv 1511.04561).
using DynamicMap = std::array<float, 256>;

const DynamicMap& signed_dynamic_map();    ///< of first moments
const DynamicMap& unsigned_dynamic_map();  ///< of second moments

/// Parameters that share a scale.
inline constexpr std::int64_t dynamic_block = 256;

/// Of the number nearest to x in [-1, 1]; of two, the lower.
std::uint8_t dynamic_code(const DynamicMap& map, float x);

/// Makes codes of at most dynamic_block values; returns their scale, the largest magnitude, with
/// which value = map[code] * scale.
float encode_block(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes);
/// The same of values that may have been decoded: then codes and scale stand for them to the bit.
/// (The largest magnitude may be that of a negative value, whose code is not -1, since there is
/// none.)
float encode_again(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes);
void decode_block(const DynamicMap& map, std::span<const std::uint8_t> codes, float scale,
                  float* values);

}  // namespace loratrain

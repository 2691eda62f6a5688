#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace loratrain {

/// The 8-bit numbers of bitsandbytes' optimizer states: values in [-1, 1], ascending by code. A
/// code has a sign, a power of ten from 1e-6 on, and a position between 0.1 and 1 times that power,
/// with more bits for larger powers. Equal to the bit to bitsandbytes' create_dynamic_map. Source:
/// Dettmers 2015, arXiv 1511.04561.
using DynamicMap = std::array<float, 256>;

const DynamicMap& signed_dynamic_map();    ///< for first moments
const DynamicMap& unsigned_dynamic_map();  ///< for second moments

/// Number of parameters that share a scale.
inline constexpr std::int64_t dynamic_block = 256;

/// Code of the number nearest to x in [-1, 1]; the lower number if two are equally near.
std::uint8_t dynamic_code(const DynamicMap& map, float x);

/// Encodes at most dynamic_block values. Returns their scale, the largest magnitude; a code stands
/// for map[code] * scale.
float encode_block(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes);
/// encode_block() for values that may come from decode_block(): then codes and scale that give the
/// same values to the bit. (The map has no -1, so a block whose largest magnitude was negative has
/// a scale larger than its values.)
float encode_again(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes);
void decode_block(const DynamicMap& map, std::span<const std::uint8_t> codes, float scale,
                  float* values);

}  // namespace loratrain

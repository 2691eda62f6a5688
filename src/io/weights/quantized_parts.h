#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/weight_format.h"

namespace loratrain {

/// The scales of quantised linears in base.h5: names, shapes, double quantisation.

/// Datasets of scales of a quantised linear X [out, in], beside its codes X.weight (u8,
/// code_bytes(in) per row), under the names of Hugging Face checkpoints. Scales are f32 unless
/// noted:
///   nf4         X.weight.absmax: a scale per 64 weights of the flattened matrix; or nested:
///               X.weight.absmax (u8), .nested_absmax (per 256 scales), .nested_quant_map [256],
///               .nested_offset [1]: scale = map[absmax] * nested + offset
///   int8        X.SCB [out]
///   e4m3        X.weight_scale [out], or [1]: one for the whole matrix
///   e4m3_block  X.weight_scale_inv [out / 128, in / 128], rounded up
inline constexpr const char* nested_absmax_suffix = ".nested_absmax";
inline constexpr const char* nested_map_suffix = ".nested_quant_map";
inline constexpr const char* nested_offset_suffix = ".nested_offset";
/// Beside them in Hugging Face checkpoints: nf4_table, and settings as JSON.
inline constexpr const char* nf4_map_suffix = ".quant_map";
inline constexpr const char* nf4_state_suffix = ".quant_state.bitsandbytes__nf4";
inline constexpr std::int64_t nested_block = 256;
inline constexpr std::int64_t tile_rows = 128;  ///< rows of a block of e4m3_block

/// Name of the scales' dataset: "model.layers.0.mlp.up_proj.SCB" for
/// "model.layers.0.mlp.up_proj.weight".
std::string scales_name(WeightFormat format, const std::string& weight_name);
/// Shape of a matrix's scales in the file, if there is more than one scale.
std::vector<std::int64_t> scales_shape(WeightFormat format, const MatrixShape& shape);

/// Scales of nf4 that are themselves quantised (QLoRA's double quantisation).
struct NestedScales {
    std::vector<float> nested;
    std::array<float, 256> map{};
    float offset = 0.0F;
    /// Scale `number`, whose code is `code`. Rounds twice, as bitsandbytes does.
    float scale(std::int64_t number, std::uint8_t code) const;
};
/// Quantises scales and fills `codes`, one per scale. The offset is the mean of the scales, 256
/// differences from it share a magnitude, and each becomes the nearest number of dynamic_map().
NestedScales nest_scales(std::span<const float> scales, std::uint8_t* codes);
/// The numbers of bitsandbytes' signed 8-bit dynamic data type, in ascending order (Dettmers, 8-Bit
/// Approximations for Parallelism in Deep Learning, 2016).
std::array<float, 256> dynamic_map();

}  // namespace loratrain

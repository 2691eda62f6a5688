#pragma once

#include <optional>

#include "base/weight_format.h"
#include "io/json_reader.h"

namespace loratrain {

/// What `quantization_config` of an HF config.json says of the linears of the layers; none where
/// there is none. Known, all others are refused by name (problems of `config`):
///   bitsandbytes, 4 bits nf4 in uint8: nf4; 8 bits: int8
///   fp8 with blocks of 128 x 128: e4m3_block
///   compressed-tensors, float-quantized, 8 bits by channel or tensor: e4m3
/// The type before quantisation is `dtype` or `torch_dtype`, bf16 where there is neither.
std::optional<Quantization> read_hf_quantization(JsonReader& config);

}  // namespace loratrain

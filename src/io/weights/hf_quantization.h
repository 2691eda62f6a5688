#pragma once

#include <optional>

#include "base/weight_format.h"
#include "io/json_reader.h"

namespace loratrain {

/// Quantisation of the layers' linears by `quantization_config` of an HF config.json; none if the
/// key is missing. Accepted; any other is refused by name as a problem of `config`:
///   bitsandbytes, 4 bits nf4 in uint8: nf4; 8 bits: int8
///   fp8 with blocks of 128 x 128: e4m3_block
///   compressed-tensors, float-quantized, 8 bits by channel or tensor: e4m3
/// The type before quantisation is `dtype` or `torch_dtype`; bf16 if both are missing.
std::optional<Quantization> read_hf_quantization(JsonReader& config);

}  // namespace loratrain

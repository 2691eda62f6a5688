#pragma once

#include <cstdint>

#include "config/model_spec.h"
#include "io/json_reader.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// Each makes names of tensors before any is looked for.
inline constexpr std::int64_t most_layers = 10000;

/// ModelSpec::layer_specs where layers differ: sliding windows, and layers without rotary
/// positions. After the dimensions; of more than most_layers, which are refused there, none.
void read_unlike_layers(JsonReader& config, const Family& family, ModelSpec& spec);

}  // namespace loratrain

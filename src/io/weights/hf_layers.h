#pragma once

#include <cstdint>
#include <vector>

#include "io/json_reader.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// Each makes names of tensors before any is looked for.
inline constexpr std::int64_t most_layers = 10000;

/// What layers of a family have unlike each other.
struct LayerTraits {
    bool rotates = true;  ///< has rotary positions
    std::int64_t sliding_window = 0;
};

/// Of each layer; of more than most_layers, which are refused elsewhere, those of the first alike.
std::vector<LayerTraits> read_layer_traits(JsonReader& config, const Family& family,
                                           std::int64_t layers);

}  // namespace loratrain

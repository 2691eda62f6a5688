#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/json_reader.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// Reads what config.json says of single layers: sliding windows, mixers, experts.

/// Largest accepted number of layers. Tensor names are made for every layer before any tensor is
/// looked up.
inline constexpr std::int64_t most_layers = 10000;

/// Properties that differ between the layers of a family.
struct LayerTraits {
    bool rotates = true;  ///< the layer has rotary positions
    std::int64_t sliding_window = 0;
    bool is_dense = false;   ///< without experts in a family that has them
    bool has_delta = false;  ///< its mixer is the family's delta net, not attention
};

/// Traits of each layer. If `layers` exceeds most_layers, which is refused elsewhere, the result
/// has the default traits for most_layers layers.
std::vector<LayerTraits> read_layer_traits(JsonReader& config, const Family& family,
                                           std::int64_t layers);

/// The delta net of a family that has them; none: it has none.
std::optional<DeltaNetSpec> read_delta_net(JsonReader& config, const Family& family);

}  // namespace loratrain

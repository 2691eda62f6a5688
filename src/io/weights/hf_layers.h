#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/layer_spec.h"
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

/// Reads a family's experts from num_experts (or num_local_experts, as transformers 5 writes it),
/// num_experts_per_tok, moe_intermediate_size and norm_topk_prob. None: no experts. Reports as
/// problems of `config`: experts in a family without them, experts that all tokens share, sliding
/// windows, and a loss of the router.
std::optional<ExpertSpec> read_experts(JsonReader& config, const Family& family,
                                       const ClassSizes& sizes);

/// Which layers are dense: of mlp_only_layers and decoder_sparse_step.
void read_dense_layers(JsonReader& config, const Family& family, std::vector<LayerTraits>& layers);

}  // namespace loratrain

#pragma once

#include <optional>
#include <vector>

#include "config/layer_spec.h"
#include "io/json_reader.h"
#include "io/weights/hf_family.h"
#include "io/weights/hf_layers.h"

namespace loratrain {

/// Reads what config.json says of experts.

/// Reads a family's experts from num_experts (or num_local_experts, as transformers 5 writes it),
/// num_experts_per_tok, moe_intermediate_size and norm_topk_prob. None: no experts. Reports as
/// problems of `config`: experts in a family without them, experts that all tokens share, sliding
/// windows, and a loss of the router.
std::optional<ExpertSpec> read_experts(JsonReader& config, const Family& family,
                                       const ClassSizes& sizes);

/// Which layers are dense: of mlp_only_layers and decoder_sparse_step.
void read_dense_layers(JsonReader& config, const Family& family, std::vector<LayerTraits>& layers);

}  // namespace loratrain

#pragma once

#include <optional>

#include "config/layer_spec.h"
#include "io/json_reader.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// Reads a family's experts from num_experts (or num_local_experts, as transformers 5 writes it),
/// num_experts_per_tok, moe_intermediate_size and norm_topk_prob. None: no experts. Reports as
/// problems of `config`: experts in a family without them, layers without experts (mlp_only_layers,
/// decoder_sparse_step), experts that all tokens share, sliding windows, and a loss of the router.
std::optional<ExpertSpec> read_experts(JsonReader& config, const Family& family);

}  // namespace loratrain

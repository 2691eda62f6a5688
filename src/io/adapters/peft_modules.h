#pragma once

#include <cstdint>

#include "config/job.h"
#include "io/json_text.h"

namespace loratrain {

/// An adapter's modules in the keys of PEFT's adapter_config.json.

/// PEFT and its readers expect a whole alpha to be written as an integer.
Json whole_or_real(double value);

/// What adapter_config.json says of an adapter's modules, by names alone, so that readers that take
/// no regular expressions or sort keys find the same: linears as "q_proj" where all layers are
/// alike, else whole names or layers.
struct PeftModules {
    Json target_modules;
    /// Weights of linears beside experts (is_beside_experts), or tensors of experts, by
    /// peft_converts_targets().
    Json target_parameters;
    Json layers_to_transform;
    Json rank_pattern;
    Json alpha_pattern;
};
/// `layers`: the first so many of the model that have all of the adapter's targets.
PeftModules peft_modules(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers);

}  // namespace loratrain

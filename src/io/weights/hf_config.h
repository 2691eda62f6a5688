#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Reads config.json of a Hugging Face folder as transformers 5 does.

/// max_position_embeddings of a config.json that parse_hf_config() accepts; 0 = not given.
std::int64_t max_positions_of(const std::string& json_text);
/// Layers that config.json counts and the model leaves out (Family::further_layers).
std::int64_t further_layers_of(const std::string& json_text);
/// eos_token_id of that config.json, one token or several; empty = not given.
std::vector<std::int32_t> end_tokens_of(const std::string& json_text);

/// Reads an HF config.json as transformers 5 does. It accepts the older spelling (rope_theta,
/// rope_scaling with type or rope_type, torch_dtype) and the newer one (rope_parameters, dtype). A
/// missing key has the default of the family's class (hf_family.h). hf_notes.h lists what is read
/// and not used.
///
/// Throws one InputError at `where` that names everything that cannot be represented: another
/// architecture, an unknown rope type, linear attention, an unknown activation or quantisation,
/// impossible dimensions, and two places that contradict each other.
ModelSpec parse_hf_config(const std::string& json_text, const std::string& where);

}  // namespace loratrain

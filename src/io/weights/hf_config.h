#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// max_position_embeddings of a config.json that parse_hf_config() accepts; 0 = not given.
std::int64_t max_positions_of(const std::string& json_text);
/// Its eos_token_id, one or several; none where it is not given.
std::vector<std::int32_t> end_tokens_of(const std::string& json_text);

/// HF config.json -> ModelSpec, as transformers 5 reads it: the older spelling (rope_theta,
/// rope_scaling with type or rope_type, torch_dtype) and the newer (rope_parameters, dtype), and
/// what it leaves out as the family's class has it (hf_family.h). Everything that cannot be
/// represented is refused by name, all at once (InputError, where = `where`): another architecture,
/// unknown rope type, linear attention, an activation or a quantisation that is not known here,
/// nonsensical dimensions, and two places that contradict each other. What is read and not used:
/// hf_notes.h.
ModelSpec parse_hf_config(const std::string& json_text, const std::string& where);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// max_position_embeddings of a config.json that parse_hf_config() accepts; 0 = not told.
std::int64_t max_positions_of(const std::string& json_text);
/// Its eos_token_id, one or several; none where it is not told.
std::vector<std::int32_t> end_tokens_of(const std::string& json_text);

/// HF config.json -> ModelSpec. Reads the older spelling (rope_theta, rope_scaling with type or
/// rope_type, torch_dtype) and the newer (rope_parameters, dtype). Families llama, mistral, qwen2,
/// qwen3, smollm3, granite, seed_oss with each family's defaults (reference/formats-and-users.md
/// section 2). Everything that cannot be represented is refused by name, all at once (InputError,
/// where = `where`): another architecture, unknown rope type, linear attention, MoE, an
/// activation other than silu, a quantisation that hf_quantization.h does not name, missing or
/// nonsensical dimensions.
ModelSpec parse_hf_config(const std::string& json_text, const std::string& where);

}  // namespace loratrain

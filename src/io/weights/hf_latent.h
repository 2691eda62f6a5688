#pragma once

#include "io/weights/hf_family.h"
#include "io/weights/hf_rope.h"

namespace loratrain {

/// Reads what config.json says of latent attention (LatentSpec).

/// Fills latent and head_dim of a family that has it, from q_lora_rank, kv_lora_rank,
/// qk_nope_head_dim, qk_rope_head_dim and v_head_dim. transformers reads no head_dim there.
void read_latent(JsonReader& config, const Family& family, AttentionSpec& attention);

/// Rotary positions of heads whose last rope_dim columns are rotated. yarn's mscale_all_dim and
/// other types' scales the scores of `attention`.
Ropes read_latent_ropes(JsonReader& config, const Family& family, AttentionSpec& attention);

}  // namespace loratrain

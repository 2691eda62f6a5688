#pragma once

#include <cstdint>

#include "config/model_spec.h"

namespace loratrain {

/// Tensor parallelism: a lane computes with its share of the heads and of the MLP's columns, that
/// is, as a stage of a thinner model does.

/// Whether `tensor` lanes can share the model: tensor divides the heads; it divides kv_heads or is
/// a multiple of them (a key-value head then lies on several lanes); 8 * tensor divides
/// intermediate_size; 8 divides q_size / tensor. One lane always can.
bool can_shard(const ModelSpec& model, std::int32_t tensor);

/// The sizes of one of `tensor` lanes: heads, kv_heads (at least 1) and intermediate_size divided
/// by them. Error unless can_shard.
ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor);

}  // namespace loratrain

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Tensor parallelism: a lane computes with its share of the heads and of the MLP's columns, that
/// is, as a stage of a thinner model does.

/// Whether `tensor` lanes can share the model: nothing is in it that lanes cannot share
/// (Ability::lanes); tensor divides the heads; it divides kv_heads or is a multiple of them (a
/// key-value head then lies on several lanes); 8 * tensor divides the MLP's size; 8 divides q_size
/// / tensor; the vocabulary has 16 rows for each; the columns that a lane has of quantised linears
/// share no scale with others. One lane always can.
bool can_shard(const ModelSpec& model, std::int32_t tensor);
/// What keeps so many lanes from it, behind their number: "does not divide 12 heads"; "" = nothing.
std::string shard_obstacle(const ModelSpec& model, std::int32_t tensor);
/// All numbers of lanes that can, rising.
std::vector<std::int32_t> tensor_degrees(const ModelSpec& model);

/// The sizes of one of `tensor` lanes: heads, kv_heads (at least 1) and sizes of MLPs divided by
/// them; vocab_size of the lane that has most rows of it. Error unless can_shard.
ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor);

/// Which of a stage's lanes one is.
struct TensorLane {
    std::int32_t index = 0;
    std::int32_t count = 1;
};

/// Rows or columns [first, first + count).
struct Slice {
    std::int64_t first = 0;
    std::int64_t count = 0;
    friend bool operator==(const Slice&, const Slice&) = default;
};

/// What a lane has of a linear's W [out, in]: of q, k, v, gate and up its rows, so the whole input
/// makes its part of the output; of o and down its columns, so that the lanes' outputs add up to
/// the linear's.
struct LinearSlice {
    Slice out;
    Slice in;
};
LinearSlice lane_slice(const ModelSpec& model, Linear linear, const TensorLane& lane);
/// o and down.
inline bool is_cut_by_columns(Linear linear) {
    return lane_cut(linear) == LaneCut::columns;
}

/// Rows of the vocabulary, of the embedding and of the head, that a lane has: whole blocks of 16
/// but the last one, as many as the others' or one less.
Slice lane_vocabulary(const ModelSpec& model, const TensorLane& lane);

/// Neighbouring lanes that have the same key-value heads, from a multiple of this number on.
std::int32_t lanes_per_key_value_head(const ModelSpec& model, std::int32_t tensor);

}  // namespace loratrain

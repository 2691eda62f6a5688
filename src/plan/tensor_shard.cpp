#include "plan/tensor_shard.h"

#include <algorithm>

#include "base/alignment.h"
#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t granule = 8;            ///< columns: one 16-byte load of bf16
constexpr std::int64_t vocabulary_block = 16;  ///< rows

bool divides(std::int64_t divisor, std::int64_t number) {
    return number % divisor == 0;
}

std::int64_t vocabulary_blocks(const ModelSpec& model) {
    return ceil_div(model.vocab_size, vocabulary_block);
}

Slice even_slice(std::int64_t whole, const TensorLane& lane) {
    const std::int64_t count = whole / lane.count;
    return {count * lane.index, count};
}

Slice key_value_slice(const ModelSpec& model, const TensorLane& lane) {
    if (lane.count <= model.kv_heads) return even_slice(model.kv_size(), lane);
    const std::int32_t head = lane.index / lanes_per_key_value_head(model, lane.count);
    return {head * model.head_dim, model.head_dim};
}

/// Columns of a linear are cut between weights that share a scale.
bool cuts_whole_blocks(const ModelSpec& model, std::int64_t columns) {
    if (!model.quantization) return true;
    const std::int64_t block = traits_of(model.quantization->format).block;
    return block == row_block || divides(block, columns);
}

}  // namespace

bool can_shard(const ModelSpec& model, std::int32_t tensor) {
    if (tensor == 1) return true;
    if (model.qk_norm_whole || model.logits_soft_cap > 0.0) return false;
    if (model.fused_qkv || model.fused_gate_up || model.has_experts()) return false;
    return tensor > 1 && divides(tensor, model.heads) &&
           (divides(tensor, model.kv_heads) || divides(model.kv_heads, tensor)) &&
           divides(granule * tensor, model.intermediate_size) &&
           divides(granule, model.q_size() / tensor) &&
           cuts_whole_blocks(model, model.q_size() / tensor) &&
           cuts_whole_blocks(model, model.intermediate_size / tensor) &&
           model.vocab_size >= vocabulary_block * tensor;
}

std::vector<std::int32_t> tensor_degrees(const ModelSpec& model) {
    std::vector<std::int32_t> degrees;
    for (std::int32_t tensor = 1; tensor <= model.heads; ++tensor) {
        if (can_shard(model, tensor)) degrees.push_back(tensor);
    }
    return degrees;
}

ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor) {
    LORATRAIN_CHECK(can_shard(model, tensor), "the model cannot be shared by ", tensor, " lanes");
    if (tensor == 1) return model;
    ModelSpec lane = model;
    lane.heads /= tensor;
    lane.kv_heads = std::max<std::int64_t>(1, model.kv_heads / tensor);
    lane.intermediate_size /= tensor;
    lane.vocab_size = std::min(model.vocab_size,
                               (vocabulary_blocks(model) + tensor - 1) / tensor * vocabulary_block);
    return lane;
}

LinearSlice lane_slice(const ModelSpec& model, Linear linear, const TensorLane& lane) {
    const LinearShape whole = target_shape(model, linear);
    LinearSlice slice{{0, whole.out}, {0, whole.in}};
    if (is_cut_by_columns(linear)) {
        slice.in = even_slice(whole.in, lane);
    } else if (linear == Linear::head) {
        slice.out = lane_vocabulary(model, lane);
    } else if (linear == Linear::embedding) {
        slice.in = lane_vocabulary(model, lane);
    } else if (linear == Linear::k || linear == Linear::v) {
        slice.out = key_value_slice(model, lane);
    } else {
        slice.out = even_slice(whole.out, lane);
    }
    return slice;
}

bool is_cut_by_columns(Linear linear) {
    return linear == Linear::o || linear == Linear::down;
}

Slice lane_vocabulary(const ModelSpec& model, const TensorLane& lane) {
    const auto begin_of = [&](std::int32_t index) {
        const std::int64_t block = vocabulary_blocks(model) * index / lane.count;
        return std::min(model.vocab_size, block * vocabulary_block);
    };
    const std::int64_t first = begin_of(lane.index);
    return {first, begin_of(lane.index + 1) - first};
}

std::int32_t lanes_per_key_value_head(const ModelSpec& model, std::int32_t tensor) {
    return tensor <= model.kv_heads ? 1 : tensor / static_cast<std::int32_t>(model.kv_heads);
}

}  // namespace loratrain

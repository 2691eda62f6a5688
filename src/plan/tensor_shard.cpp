#include "plan/tensor_shard.h"

#include <algorithm>
#include <variant>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/text.h"

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

/// Of `own` columns, which neighbouring lanes have alike where there are fewer key-value heads than
/// lanes.
Slice shared_slice(std::int64_t whole, std::int64_t own, const TensorLane& lane) {
    const auto sharers = static_cast<std::int32_t>(own * lane.count / whole);
    return {lane.index / sharers * own, own};
}

/// Blocks of equal size, of which the last may be smaller or empty.
Slice block_of(std::int64_t whole, const TensorLane& lane) {
    const std::int64_t size = ceil_div<std::int64_t>(whole, lane.count);
    const std::int64_t first = std::min(whole, size * lane.index);
    return {first, std::min(whole, first + size) - first};
}

/// Of each part, an even slice.
Slices slices_of(const PartSizes& parts, const TensorLane& lane) {
    Slices slices;
    std::int64_t first = 0;
    for (const std::int64_t part : parts) {
        const Slice own = even_slice(part, lane);
        slices.add({first + own.first, own.count});
        first += part;
    }
    return slices;
}

Slice key_value_slice(const ModelSpec& model, const TensorLane& lane) {
    const AttentionSpec& attention = model.attention();
    if (lane.count <= attention.kv_heads) return even_slice(attention.kv_size(), lane);
    const std::int32_t head = lane.index / lanes_per_key_value_head(model, lane.count);
    return {head * attention.head_dim, attention.head_dim};
}

/// Columns of a linear are cut between weights that share a scale.
bool cuts_whole_blocks(const ModelSpec& model, std::int64_t columns) {
    if (!model.quantization) return true;
    const std::int64_t block = traits_of(model.quantization->format).block;
    return block == row_block || divides(block, columns);
}

/// Columns that a lane reads of what lanes cut by columns.
bool are_columns_wide(const ModelSpec& model, std::int64_t columns) {
    return divides(granule, columns) && cuts_whole_blocks(model, columns);
}

bool are_delta_lanes_wide(const ModelSpec& model, std::int32_t tensor) {
    const DeltaNetSpec* net = model.delta_nets();
    return net == nullptr || (divides(granule, net->key_size() / tensor) &&
                              are_columns_wide(model, net->value_size() / tensor));
}

/// Of experts, which may be of any size, a lane has as many columns as of others.
bool are_mlps_wide(const ModelSpec& model, std::int32_t tensor) {
    const DenseSpec* dense = model.dense_layers();
    const ExpertSpec* experts = model.experts();
    const auto is_shared = [&](std::int64_t size) {
        return divides(tensor, size) && cuts_whole_blocks(model, size / tensor);
    };
    const bool whole = has_whole_experts(model);
    return (dense == nullptr ||
            (divides(granule * tensor, dense->size) && is_shared(dense->size))) &&
           (experts == nullptr ||
            ((whole || is_shared(experts->size)) && is_shared(experts->shared_size)));
}

bool are_lanes_wide(const ModelSpec& model, std::int32_t tensor) {
    const std::int64_t queries = model.attention().q_size() / tensor;
    return are_mlps_wide(model, tensor) && are_columns_wide(model, queries) &&
           are_delta_lanes_wide(model, tensor) && model.vocab_size >= vocabulary_block * tensor;
}

std::string words_of_sizes(const ModelSpec& model) {
    std::vector<std::string> sizes;
    const DenseSpec* dense = model.dense_layers();
    if (dense != nullptr) sizes.push_back(cat("an intermediate size of ", dense->size));
    if (const ExpertSpec* experts = model.experts()) {
        if (!has_whole_experts(model)) sizes.push_back(cat("experts of ", experts->size));
        if (experts->has_shared())
            sizes.push_back(cat("a shared expert of ", experts->shared_size));
    }
    sizes.push_back(
        cat("heads of ", model.attention().head_dim, " and a vocabulary of ", model.vocab_size));
    return join(sizes, ", ");
}

AttentionSpec lane_of(AttentionSpec whole, std::int32_t tensor) {
    whole.heads /= tensor;
    whole.kv_heads = std::max<std::int64_t>(1, whole.kv_heads / tensor);
    return whole;
}
DeltaNetSpec lane_of(DeltaNetSpec whole, std::int32_t tensor) {
    whole.key_heads /= tensor;
    whole.value_heads /= tensor;
    return whole;
}
DenseSpec lane_of(DenseSpec whole, std::int32_t tensor) {
    whole.size /= tensor;
    return whole;
}
ExpertSpec lane_of(ExpertSpec whole, std::int32_t tensor) {
    if (whole.cut == ExpertCut::whole) {
        whole.lanes = tensor;
    } else {
        whole.size /= tensor;
    }
    whole.shared_size /= tensor;
    return whole;
}

}  // namespace

std::string shard_obstacle(const ModelSpec& model, std::int32_t tensor) {
    if (tensor == 1) return "";
    const AttentionSpec& attention = model.attention();
    const std::int64_t kv_heads = attention.kv_heads;
    if (attention.latent) return "cannot be: lanes do not share latent attention";
    if (!divides(tensor, attention.heads)) {
        return cat("does not divide ", attention.heads, " heads");
    }
    if (!divides(tensor, kv_heads) && !divides(kv_heads, tensor)) {
        return cat("neither divides ", kv_heads, " key-value heads nor is it a multiple of them");
    }
    if (attention.fused_qkv && tensor > kv_heads) {
        return cat("is more than ", kv_heads, " key-value heads, and one linear makes q, k and v");
    }
    const DeltaNetSpec* net = model.delta_nets();
    if (net != nullptr && !divides(tensor, net->key_heads)) {
        return cat("does not divide ", net->key_heads, " key heads of gated delta nets");
    }
    if (has_whole_experts(model) && tensor > model.experts()->count) {
        return cat("is more than ", model.experts()->count, " experts");
    }
    if (are_lanes_wide(model, tensor)) return "";
    return cat("lanes are too many for ", words_of_sizes(model));
}

bool can_shard(const ModelSpec& model, std::int32_t tensor) {
    return tensor >= 1 && shard_obstacle(model, tensor).empty();
}

std::vector<std::int32_t> tensor_degrees(const ModelSpec& model) {
    std::vector<std::int32_t> degrees;
    for (std::int32_t tensor = 1; tensor <= model.attention().heads; ++tensor) {
        if (can_shard(model, tensor)) degrees.push_back(tensor);
    }
    return degrees;
}

ModelSpec lane_model(const ModelSpec& model, std::int32_t tensor) {
    LORATRAIN_CHECK(can_shard(model, tensor), "the model cannot be shared by ", tensor, " lanes");
    if (tensor == 1) return model;
    ModelSpec lane = model;
    const auto cut = [tensor](const auto& kind) { return lane_of(kind, tensor); };
    for (LayerSpec& layer : lane.descriptions) {
        layer.mixer = std::visit([&](const auto& kind) { return Mixer(cut(kind)); }, layer.mixer);
        layer.mlp = std::visit([&](const auto& kind) { return Mlp(cut(kind)); }, layer.mlp);
    }
    lane.vocab_size = std::min(model.vocab_size,
                               (vocabulary_blocks(model) + tensor - 1) / tensor * vocabulary_block);
    return lane;
}

LinearSlice lane_slice(const ModelSpec& model, Linear linear, const TensorLane& lane) {
    return lane_slice(model, linear, linear_of(model, linear), lane);
}

LinearSlice lane_slice(const ModelSpec& model, Linear linear, const LayerLinear& of,
                       const TensorLane& lane) {
    const LinearShape& whole = of.shape;
    LinearSlice slice{Slice{0, whole.out}, {0, whole.in}};
    if (linear == Linear::head) {
        slice.out = lane_vocabulary(model, lane);
        return slice;
    }
    if (linear == Linear::embedding) {
        slice.in = lane_vocabulary(model, lane);
        return slice;
    }
    if (of.is_in_experts() && has_whole_experts(model)) return slice;
    switch (lane_cut(linear)) {
        case LaneCut::rows:
            slice.out = slices_of(of.parts == PartSizes{} ? PartSizes{whole.out} : of.parts, lane);
            break;
        case LaneCut::key_value_heads:
            slice.out = key_value_slice(model, lane);
            break;
        case LaneCut::columns:
            slice.in = even_slice(whole.in, lane);
            break;
    }
    return slice;
}

bool has_whole_experts(const ModelSpec& model) {
    return model.experts() != nullptr && model.experts()->cut == ExpertCut::whole;
}

Slice lane_experts(const ExpertSpec& experts, const TensorLane& lane) {
    if (experts.cut == ExpertCut::columns) return {0, experts.count};
    return block_of(experts.count, lane);
}

LinearSlice lane_slice(const ModelSpec& model, Linear linear, const LayerLinear& of,
                       std::int32_t expert, const TensorLane& lane) {
    if (!of.is_in_experts()) return lane_slice(model, linear, of, lane);
    const Slice own = lane_experts(*model.experts(), lane);
    const bool has = expert >= own.first && expert < own.end();
    return has ? lane_slice(model, linear, of, lane) : LinearSlice{};
}

TensorSlice lane_slice(const LayerTensorShape& whole, const LayerTensorShape& own,
                       const TensorLane& lane) {
    TensorSlice slice;
    if (whole.parts != PartSizes{}) {
        slice.rows = slices_of(whole.parts, lane);
    } else if (own.rows < whole.rows) {
        slice.rows = block_of(whole.rows, lane);
    } else {
        slice.rows = Slice{0, std::max<std::int64_t>(1, whole.rows)};
    }
    if (own.columns == whole.columns) {
        slice.columns = Slice{0, whole.columns};
        return slice;
    }
    const std::int64_t part = whole.columns / whole.column_parts;
    for (std::int64_t i = 0; i < whole.column_parts; ++i) {
        const Slice of_part = shared_slice(part, own.columns / whole.column_parts, lane);
        slice.columns.add({i * part + of_part.first, of_part.count});
    }
    return slice;
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
    const auto heads = static_cast<std::int32_t>(model.attention().kv_heads);
    return tensor <= heads ? 1 : tensor / heads;
}

}  // namespace loratrain

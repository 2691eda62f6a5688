#include "io/weights/base_tensors.h"

#include <optional>

#include "config/layer_tensors.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

void add_linear(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                Linear linear) {
    const LayerLinear found = linear_of(spec.layer(layer), spec.hidden_size, linear);
    if (!found.is_there || found.is_in_experts()) return;
    const LinearShape& shape = found.shape;
    tensors.push_back({weight_name(layer, linear), {shape.out, shape.in}});
    if (found.bias) tensors.push_back({bias_name(layer, linear), {shape.out}});
}

void add_linears(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                 LinearGroup group) {
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (linear_group(linear) == group) add_linear(tensors, spec, layer, linear);
    }
}

/// Those in front of the group; none: behind all linears.
void add_others(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                std::optional<LinearGroup> group) {
    const LayerSpec& of = spec.layer(layer);
    for (int i = 0; i < layer_tensor_count; ++i) {
        const auto tensor = static_cast<LayerTensor>(i);
        const LayerTensorShape shape = layer_tensor_shape(of, spec.hidden_size, tensor);
        if (group_behind(tensor) != group || shape.columns == 0) continue;
        tensors.push_back({layer_tensor_name(layer, tensor, of), {shape.columns}});
        if (shape.rows > 0) tensors.back().shape = {shape.rows, shape.columns};
    }
}

void add_experts(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer) {
    const LayerSpec& of = spec.layer(layer);
    const ExpertSpec* experts = of.experts();
    if (experts == nullptr) return;
    for (std::int64_t expert = 0; expert < experts->count; ++expert) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const LayerLinear found = linear_of(of, spec.hidden_size, linear);
            if (!found.is_in_experts()) continue;
            const LinearShape& shape = found.shape;
            tensors.push_back({expert_weight_name(layer, expert, linear), {shape.out, shape.in}});
        }
    }
}

}  // namespace

std::vector<BaseTensor> base_tensors(const ModelSpec& spec) {
    std::vector<BaseTensor> tensors{{embedding_name, {spec.vocab_size, spec.hidden_size}}};
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        for (const LinearGroup group : linear_groups) {
            add_others(tensors, spec, layer, group);
            add_linears(tensors, spec, layer, group);
        }
        add_experts(tensors, spec, layer);
        add_others(tensors, spec, layer, std::nullopt);
    }
    tensors.push_back({final_norm_name, {spec.hidden_size}});
    if (!spec.tie_word_embeddings) {
        tensors.push_back({head_name, {spec.vocab_size, spec.hidden_size}});
    }
    return tensors;
}

}  // namespace loratrain

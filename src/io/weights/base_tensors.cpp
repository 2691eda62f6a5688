#include "io/weights/base_tensors.h"

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

void add_norm(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
              LayerNorm norm) {
    const std::int64_t size = norm_size(spec.layer(layer), spec.hidden_size, norm);
    if (size > 0) tensors.push_back({norm_name(layer, norm, spec), {size}});
}

void add_experts(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer) {
    const LayerSpec& of = spec.layer(layer);
    const ExpertSpec* experts = of.experts();
    if (experts == nullptr) return;
    tensors.push_back({router_name(layer), {experts->count, spec.hidden_size}});
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
        const auto norm = [&](LayerNorm which) { add_norm(tensors, spec, layer, which); };
        norm(LayerNorm::before_attention);
        add_linears(tensors, spec, layer, LinearGroup::qkv);
        add_linears(tensors, spec, layer, LinearGroup::o);
        for (int i = 1; i + 1 < layer_norm_count; ++i) norm(static_cast<LayerNorm>(i));
        add_linears(tensors, spec, layer, LinearGroup::gate_up);
        add_linears(tensors, spec, layer, LinearGroup::down);
        add_experts(tensors, spec, layer);
        if (has_activation_weights(spec.layer(layer))) {
            tensors.push_back({activation_weight_name(layer, true), {1}});
            tensors.push_back({activation_weight_name(layer, false), {1}});
        }
        norm(LayerNorm::after_mlp);
    }
    tensors.push_back({final_norm_name, {spec.hidden_size}});
    if (!spec.tie_word_embeddings) {
        tensors.push_back({head_name, {spec.vocab_size, spec.hidden_size}});
    }
    return tensors;
}

}  // namespace loratrain

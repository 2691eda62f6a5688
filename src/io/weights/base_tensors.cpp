#include "io/weights/base_tensors.h"

#include "io/tensor_names.h"

namespace loratrain {

namespace {

void add_linear(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
                Linear linear) {
    if (!has_linear(spec, linear)) return;
    const LinearShape shape = linear_shape(spec, linear);
    tensors.push_back({weight_name(layer, linear), {shape.out, shape.in}});
    if (has_bias(spec, linear)) tensors.push_back({bias_name(layer, linear), {shape.out}});
}

void add_norm(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer,
              LayerNorm norm) {
    std::int64_t size = spec.hidden_size;
    if (norm == LayerNorm::q) size = spec.q_norm_size();
    if (norm == LayerNorm::k) size = spec.k_norm_size();
    tensors.push_back({norm_name(layer, norm, spec), {size}});
}

void add_experts(std::vector<BaseTensor>& tensors, const ModelSpec& spec, std::int64_t layer) {
    const auto& [count, per_token, size, normalised] = spec.experts;
    if (count == 0) return;
    tensors.push_back({router_name(layer), {count, spec.hidden_size}});
    for (std::int64_t expert = 0; expert < count; ++expert) {
        for (const Linear linear : {Linear::gate, Linear::up, Linear::down}) {
            const bool down = linear == Linear::down;
            tensors.push_back({expert_weight_name(layer, expert, linear),
                               {down ? spec.hidden_size : size, down ? size : spec.hidden_size}});
        }
    }
}

}  // namespace

std::vector<BaseTensor> base_tensors(const ModelSpec& spec) {
    std::vector<BaseTensor> tensors{{embedding_name, {spec.vocab_size, spec.hidden_size}}};
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        const auto norm = [&](LayerNorm which) { add_norm(tensors, spec, layer, which); };
        if (spec.has_norms_before()) norm(LayerNorm::before_attention);
        for (const Linear linear : {Linear::q, Linear::k, Linear::v, Linear::qkv, Linear::o}) {
            add_linear(tensors, spec, layer, linear);
        }
        if (spec.qk_norm) {
            norm(LayerNorm::q);
            norm(LayerNorm::k);
        }
        if (spec.has_norms_after()) norm(LayerNorm::after_attention);
        if (spec.has_norms_before()) norm(LayerNorm::before_mlp);
        for (const Linear linear : {Linear::gate, Linear::up, Linear::gate_up, Linear::down}) {
            add_linear(tensors, spec, layer, linear);
        }
        add_experts(tensors, spec, layer);
        if (spec.activation == Activation::xielu) {
            tensors.push_back({activation_weight_name(layer, true), {1}});
            tensors.push_back({activation_weight_name(layer, false), {1}});
        }
        if (spec.has_norms_after()) norm(LayerNorm::after_mlp);
    }
    tensors.push_back({final_norm_name, {spec.hidden_size}});
    if (!spec.tie_word_embeddings) {
        tensors.push_back({head_name, {spec.vocab_size, spec.hidden_size}});
    }
    return tensors;
}

}  // namespace loratrain

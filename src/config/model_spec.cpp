#include "config/model_spec.h"

#include "base/text.h"

#include <array>
#include <cmath>

namespace loratrain {

double ModelSpec::attention_scale(const LayerSpec& layer) const {
    const double usual = 1.0 / std::sqrt(static_cast<double>(head_dim));
    const RopeSpec& rotation = rope_of(layer);
    const bool whole = layer.rope && rotation.rotated == 1.0;
    const double length = whole ? rotation.attention_factor : 1.0;
    return (attention_multiplier > 0.0 ? attention_multiplier : usual) * length * length;
}

std::int64_t outer_layer(const ModelSpec& spec, Linear linear) {
    return linear == Linear::embedding ? embedding_layer : spec.layers;
}

const char* module_name(Linear linear) {
    static constexpr std::array<const char*, linear_count + outer_linears.size()> names{
        "q_proj",    "k_proj",   "v_proj",       "o_proj",  "gate_proj",   "up_proj",
        "down_proj", "qkv_proj", "gate_up_proj", "lm_head", "embed_tokens"};
    return names[static_cast<std::size_t>(linear)];
}

std::string module_path(std::int64_t layer, Linear linear) {
    if (linear == Linear::head) return module_name(linear);
    if (linear == Linear::embedding) return cat("model.", module_name(linear));
    const bool in_attention = linear == Linear::q || linear == Linear::k || linear == Linear::v ||
                              linear == Linear::o || linear == Linear::qkv;
    return cat("model.layers.", layer, in_attention ? ".self_attn." : ".mlp.", module_name(linear));
}

std::string module_path(std::int64_t layer, Linear linear, std::int32_t expert) {
    if (expert == no_expert) return module_path(layer, linear);
    return cat("model.layers.", layer, ".mlp.experts.", expert, ".", module_name(linear));
}

LinearShape linear_shape(const ModelSpec& spec, Linear linear) {
    if (!has_linear(spec, linear)) return {};
    switch (linear) {
        case Linear::q:
            return {spec.hidden_size, spec.q_size()};
        case Linear::k:
        case Linear::v:
            return {spec.hidden_size, spec.kv_size()};
        case Linear::qkv:
            return {spec.hidden_size, spec.q_size() + 2 * spec.kv_size()};
        case Linear::o:
            return {spec.q_size(), spec.hidden_size};
        case Linear::gate:
        case Linear::up:
            return {spec.hidden_size, spec.intermediate_size};
        case Linear::gate_up:
            return {spec.hidden_size, 2 * spec.intermediate_size};
        case Linear::down:
            return {spec.intermediate_size, spec.hidden_size};
        case Linear::head:
            return {spec.hidden_size, spec.vocab_size};
        case Linear::embedding:
            return {spec.vocab_size, spec.hidden_size};
    }
    return {};
}

bool has_linear(const ModelSpec& spec, Linear linear) {
    switch (linear) {
        case Linear::q:
        case Linear::k:
        case Linear::v:
            return !spec.fused_qkv;
        case Linear::qkv:
            return spec.fused_qkv;
        case Linear::gate:
            return !spec.fused_gate_up && spec.has_gate() && !spec.has_experts();
        case Linear::up:
            return !spec.fused_gate_up && !spec.has_experts();
        case Linear::gate_up:
            return spec.fused_gate_up && !spec.has_experts();
        case Linear::down:
            return !spec.has_experts();
        default:
            return true;
    }
}

std::vector<std::string> linear_names(const ModelSpec& spec) {
    std::vector<std::string> names;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (has_linear(spec, linear)) names.emplace_back(module_name(linear));
    }
    return names;
}

std::vector<std::string> target_names(const ModelSpec& spec) {
    std::vector<std::string> names;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (has_target(spec, linear)) names.emplace_back(module_name(linear));
    }
    return names;
}

bool has_bias(const ModelSpec& spec, Linear linear) {
    if (!has_linear(spec, linear)) return false;
    switch (linear) {
        case Linear::q:
        case Linear::k:
        case Linear::v:
        case Linear::qkv:
            return spec.qkv_bias;
        case Linear::o:
            return spec.o_bias;
        case Linear::head:
        case Linear::embedding:
            return false;
        default:
            return spec.mlp_bias;
    }
}

bool is_in_experts(const ModelSpec& spec, Linear linear) {
    const bool gated = linear == Linear::gate || linear == Linear::up || linear == Linear::down;
    return spec.has_experts() && gated;
}

bool has_target(const ModelSpec& spec, Linear linear) {
    return has_linear(spec, linear) || is_in_experts(spec, linear);
}

LinearShape target_shape(const ModelSpec& spec, Linear linear) {
    if (!is_in_experts(spec, linear)) return linear_shape(spec, linear);
    if (linear == Linear::down) return {spec.experts.size, spec.hidden_size};
    return {spec.hidden_size, spec.experts.size};
}

TargetExperts target_experts(const ModelSpec& spec, Linear linear) {
    if (!is_in_experts(spec, linear)) return {};
    return {0, static_cast<std::int32_t>(spec.experts.count)};
}

std::int64_t layer_parameters(const ModelSpec& spec, std::int64_t experts) {
    std::int64_t parameters = 0;
    for (int i = 0; i < linear_count; ++i) {
        const LinearShape shape = linear_shape(spec, static_cast<Linear>(i));
        parameters += shape.in * shape.out;
    }
    const std::int64_t of_expert = 3 * spec.hidden_size * spec.experts.size;
    return parameters + spec.experts.count * spec.hidden_size + experts * of_expert;
}

std::int64_t matmul_parameters(const ModelSpec& spec) {
    return spec.layers * layer_parameters(spec, spec.experts.per_token) +
           spec.vocab_size * spec.hidden_size;
}

std::int64_t held_parameters(const ModelSpec& spec) {
    return spec.layers * layer_parameters(spec, spec.experts.count) +
           spec.vocab_size * spec.hidden_size;
}

}  // namespace loratrain

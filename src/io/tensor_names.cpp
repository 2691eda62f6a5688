#include "io/tensor_names.h"

#include <charconv>
#include <string_view>

#include "base/text.h"

namespace loratrain {

namespace {

std::string layer_path(std::int64_t layer) {
    return cat("model.layers.", layer, ".");
}

/// -1 = none.
std::int64_t number_behind(std::string_view before, const std::string& name) {
    const std::size_t found = name.find(before);
    if (found == std::string::npos) return -1;
    std::int64_t number = -1;
    std::from_chars(name.data() + found + before.size(), name.data() + name.size(), number);
    return number;
}

}  // namespace

std::string norm_name(std::int64_t layer, LayerNorm norm, const ModelSpec& spec) {
    const auto named = [layer](const char* name) {
        return cat(layer_path(layer), name, ".weight");
    };
    const Norms& norms = spec.layer(layer).norms;
    const bool both = norms.placement == NormPlacement::both;
    const bool glm4 = norms.names == NormNames::glm4;
    const bool apertus = norms.names == NormNames::apertus;
    switch (norm) {
        case LayerNorm::before_attention:
            return named(apertus ? "attention_layernorm" : "input_layernorm");
        case LayerNorm::after_attention:
            return named(glm4 ? "post_self_attn_layernorm" : "post_attention_layernorm");
        case LayerNorm::before_mlp:
            if (apertus) return named("feedforward_layernorm");
            return named(both && !glm4 ? "pre_feedforward_layernorm" : "post_attention_layernorm");
        case LayerNorm::after_mlp:
            return named(glm4 ? "post_mlp_layernorm" : "post_feedforward_layernorm");
        case LayerNorm::q:
            return named("self_attn.q_norm");
        case LayerNorm::k:
            return named("self_attn.k_norm");
    }
    return "";
}

std::string activation_weight_name(std::int64_t layer, bool positive) {
    return activation_constant_name(layer, positive ? "alpha_p" : "alpha_n");
}

std::string activation_constant_name(std::int64_t layer, const char* constant) {
    return cat(layer_path(layer), "mlp.act_fn.", constant);
}

std::string router_name(std::int64_t layer) {
    return layer_path(layer) + "mlp.gate.weight";
}

std::string expert_weight_name(std::int64_t layer, std::int64_t expert, Linear linear) {
    return module_path(layer, linear, static_cast<std::int32_t>(expert)) + ".weight";
}

std::string weight_name(std::int64_t layer, Linear linear) {
    return module_path(layer, linear) + ".weight";
}

std::string bias_name(std::int64_t layer, Linear linear) {
    return module_path(layer, linear) + ".bias";
}

bool is_norm_name(const std::string& name) {
    return name.ends_with("norm.weight");
}

bool is_bias_name(const std::string& name) {
    return name.ends_with(".bias");
}

bool is_name_of(const std::string& name, Linear linear) {
    return name.find(cat(".", module_name(linear), ".")) != std::string::npos;
}

bool is_linear_weight(const std::string& name) {
    return name.ends_with("_proj.weight");
}

bool is_stored_table_name(const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || name.ends_with("mlp.act_fn.beta") ||
           name.ends_with("mlp.act_fn.eps");
}

std::int64_t layer_in_name(const std::string& name) {
    return number_behind("model.layers.", name);
}

std::int32_t expert_in_name(const std::string& name) {
    return static_cast<std::int32_t>(number_behind(".mlp.experts.", name));
}

std::string name_in_text_model(const std::string& name) {
    const auto behind = [&name](std::string_view prefix) { return name.substr(prefix.size()); };
    if (name.starts_with("language_model.")) return behind("language_model.");
    constexpr std::string_view inner = "model.language_model.";
    if (name.starts_with(inner)) return "model." + behind(inner);
    for (const char* own : {"model.layers.", "model.embed_tokens.", "model.norm.", "lm_head."}) {
        if (name.starts_with(own)) return name;
    }
    return "";
}

std::string module_path_in_wrapper(const std::string& path) {
    constexpr std::string_view text = "model.";
    return path.starts_with(text) ? "model.language_model." + path.substr(text.size()) : path;
}

std::string peft_name_in_wrapper(const std::string& name) {
    constexpr std::string_view base = "base_model.model.";
    return name.starts_with(base) ? cat(base, module_path_in_wrapper(name.substr(base.size())))
                                  : name;
}

std::string peft_name_in_text_model(const std::string& name) {
    constexpr std::string_view base = "base_model.model.";
    if (!name.starts_with(base)) return name;
    const std::string text = name_in_text_model(name.substr(base.size()));
    return text.empty() ? name : cat(base, text);
}

std::string peft_tensor_name(std::int64_t layer, Linear linear, const FormTensor& tensor,
                             std::int32_t expert) {
    return cat("base_model.model.", module_path(layer, linear, expert), ".",
               on_linear(tensor, linear).peft_suffix);
}

}  // namespace loratrain

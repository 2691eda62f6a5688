#include "io/tensor_names.h"

#include <charconv>
#include <string_view>

#include "base/text.h"

namespace loratrain {

namespace {

/// -1 = none.
std::int64_t number_behind(std::string_view before, const std::string& name) {
    const std::size_t found = name.find(before);
    if (found == std::string::npos) return -1;
    std::int64_t number = -1;
    std::from_chars(name.data() + found + before.size(), name.data() + name.size(), number);
    return number;
}

}  // namespace

std::string activation_constant_name(std::int64_t layer, const char* constant) {
    return cat("model.layers.", layer, ".mlp.act_fn.", constant);
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
    return linear_of_module(std::string_view(name).substr(0, name.rfind('.'))) == linear;
}

bool is_linear_weight(const std::string& name) {
    constexpr std::string_view weight = ".weight";
    if (!name.ends_with(weight)) return false;
    const auto linear =
        linear_of_module(std::string_view(name).substr(0, name.size() - weight.size()));
    return linear && !is_outer(*linear);
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

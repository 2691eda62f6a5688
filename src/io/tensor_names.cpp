#include "io/tensor_names.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

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

constexpr std::string_view peft_base = "base_model.model.";

/// Parts of names, between two dots.
struct OtherWord {
    ExpertNames names;
    std::string_view own;  ///< in base.h5, or what is split into tensors there
    std::string_view in_files;
};
constexpr OtherWord other_words[] = {
    {ExpertNames::mixtral, "mlp", "block_sparse_moe"},
    {ExpertNames::mixtral, "gate_proj", "w1"},
    {ExpertNames::mixtral, "down_proj", "w2"},
    {ExpertNames::mixtral, "up_proj", "w3"},
    {ExpertNames::glm4_moe, "shared_expert", "shared_experts"},
    {ExpertNames::granitemoe, "mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
    {ExpertNames::granitemoe, "mlp.experts.down_proj", "block_sparse_moe.output_linear.weight"},
    {ExpertNames::granitemoe, "mlp.gate", "block_sparse_moe.router.layer"},
    {ExpertNames::granitemoe, "mlp.gate", "block_sparse_moe.router"},
    {ExpertNames::granitemoe, "mlp", "block_sparse_moe"},
    {ExpertNames::gpt_oss, "gate", "router"},
    {ExpertNames::gpt_oss, "gate_up_bias", "gate_up_proj_bias"},
    {ExpertNames::gpt_oss, "down_bias", "down_proj_bias"}};

ExpertNames expert_names_of(const ModelSpec& model) {
    const ExpertSpec* experts = model.experts();
    return experts != nullptr ? experts->names : ExpertNames::usual;
}

bool begins_with_words(std::string_view name, std::size_t begin, std::string_view words) {
    const std::string_view rest = name.substr(begin);
    return rest.starts_with(words) && (rest.size() == words.size() || rest[words.size()] == '.');
}

/// `to_files`: from own words to those in files, else back.
std::string with_words(ExpertNames names, const std::string& name, bool to_files) {
    if (names == ExpertNames::usual) return name;
    std::string result;
    for (std::size_t begin = 0; begin <= name.size();) {
        std::size_t end = std::min(name.find('.', begin), name.size());
        std::string_view word = std::string_view(name).substr(begin, end - begin);
        for (const OtherWord& other : other_words) {
            const auto& [from, to] = to_files ? std::pair(other.own, other.in_files)
                                              : std::pair(other.in_files, other.own);
            if (other.names != names || !begins_with_words(name, begin, from)) continue;
            word = to;
            end = begin + from.size();
            break;
        }
        result += word;
        if (end < name.size()) result += '.';
        begin = end + 1;
    }
    return result;
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

bool is_convolution_name(const std::string& name) {
    return name.ends_with(".conv1d.weight");
}

bool is_stored_table_name(const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || name.ends_with("mlp.act_fn.beta") ||
           name.ends_with("mlp.act_fn.eps");
}

std::int64_t layer_in_name(const std::string& name) {
    return number_behind("model.layers.", name);
}

std::int32_t expert_in_name(const std::string& name) {
    return static_cast<std::int32_t>(number_behind(".experts.", name));
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

bool has_other_names(const ModelSpec& model) {
    return !model.wrapper.empty() || expert_names_of(model) != ExpertNames::usual;
}

std::string name_in_files(const ModelSpec& model, const std::string& name) {
    constexpr std::string_view text = "model.";
    std::string other = with_words(expert_names_of(model), name, true);
    if (model.wrapper.empty() || !name.starts_with(text)) return other;
    return "model.language_model." + other.substr(text.size());
}

std::string name_of_files(ExpertNames names, const std::string& name) {
    return with_words(names, name, false);
}

std::string name_of_files(const ModelSpec& model, const std::string& name) {
    const std::string text = model.wrapper.empty() ? name : name_in_text_model(name);
    return name_of_files(expert_names_of(model), text);
}

std::string peft_name_in_files(const ModelSpec& model, const std::string& name) {
    if (!name.starts_with(peft_base)) return name;
    return cat(peft_base, name_in_files(model, name.substr(peft_base.size())));
}

std::string peft_name_of_files(const ModelSpec& model, const std::string& name) {
    if (!name.starts_with(peft_base)) return name;
    const std::string text = name_of_files(model, name.substr(peft_base.size()));
    return text.empty() ? name : cat(peft_base, text);
}

std::string peft_tensor_name(std::int64_t layer, Linear linear, const FormTensor& tensor,
                             std::int32_t expert) {
    return cat(peft_base, module_path(layer, linear, expert), ".",
               on_linear(tensor, linear).peft_suffix);
}

}  // namespace loratrain

#include <span>

#include "base/error.h"
#include "base/text.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

constexpr const char* visual = ".*visual.*";

constexpr Wrapper wrappers[] = {{"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", true},
                                {"mistral3", "Mistral3ForConditionalGeneration", "mistral", false},
                                {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text",
                                 false, TieKey::either, true, visual},
                                {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
                                 "qwen2_5_vl_text", false, TieKey::either, true, visual},
                                {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text",
                                 false, TieKey::outer_alone, false, visual},
                                {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text",
                                 false, TieKey::outer_alone, false, visual},
                                {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
                                 "qwen3_5_moe_text", false, TieKey::outer_alone, false, visual}};

bool says_tied(const Json& config) {
    const auto found = config.find("tie_word_embeddings");
    return found != config.end() && *found == true;
}

/// tie_word_embeddings of the text model.
Json tied_embeddings(const Json& outer, const Json& text, const Wrapper& wrapper) {
    constexpr const char* key = "tie_word_embeddings";
    if (wrapper.tie_key == TieKey::either && says_tied(text)) return true;
    if (outer.contains(key)) return outer[key];
    const bool reads_text = wrapper.tie_key == TieKey::outer_first && text.contains(key);
    return reads_text ? text[key] : Json(wrapper.tied);
}

}  // namespace

std::span<const Wrapper> model_wrappers() {
    return wrappers;
}

const Wrapper* wrapper_named(const std::string& name) {
    for (const Wrapper& wrapper : wrappers) {
        if (name == wrapper.name) return &wrapper;
    }
    return nullptr;
}

const Wrapper* wrapper_of(const Json& document) {
    const auto type = document.find("model_type");
    const bool named = type != document.end() && type->is_string();
    return named ? wrapper_named(type->get<std::string>()) : nullptr;
}

Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where) {
    const auto found = document.find("text_config");
    const bool inside = found != document.end() && found->is_object();
    if (!inside && !wrapper.flat) {
        throw InputError(where, cat("has no text_config, which a ", wrapper.name, " has"),
                         "give the config.json of the whole model");
    }
    Json text = inside ? *found : document;
    text.erase("architectures");
    if (!inside) text.erase("model_type");
    if (!text.contains("model_type")) text["model_type"] = wrapper.inner;
    text["tie_word_embeddings"] = tied_embeddings(document, text, wrapper);
    const auto quantization = document.find("quantization_config");
    if (quantization != document.end()) text["quantization_config"] = *quantization;
    return text;
}

Json text_document(const Json& document, const std::string& where) {
    const Wrapper* wrapper = wrapper_of(document);
    return wrapper != nullptr ? text_config(document, *wrapper, where) : document;
}

}  // namespace loratrain

#include "io/weights/hf_document.h"

#include "base/error.h"

namespace loratrain {

const Wrapper* wrapper_of(const Json& document) {
    const auto type = document.find("model_type");
    for (const Wrapper& wrapper : model_wrappers()) {
        if (type != document.end() && *type == wrapper.name) return &wrapper;
    }
    return nullptr;
}

Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where) {
    const auto found = document.find("text_config");
    if (found == document.end() || !found->is_object()) {
        throw InputError(where, cat("has no text_config, which a ", wrapper.name, " has"),
                         "give the config.json of the whole model");
    }
    Json text = *found;
    text.erase("architectures");
    if (!text.contains("model_type")) text["model_type"] = wrapper.inner;
    const auto outer = document.find("tie_word_embeddings");
    if (outer != document.end()) text["tie_word_embeddings"] = *outer;
    if (!text.contains("tie_word_embeddings")) text["tie_word_embeddings"] = wrapper.tied;
    const auto quantization = document.find("quantization_config");
    if (quantization != document.end()) text["quantization_config"] = *quantization;
    return text;
}

Json text_document(const Json& document, const std::string& where) {
    const Wrapper* wrapper = wrapper_of(document);
    return wrapper != nullptr ? text_config(document, *wrapper, where) : document;
}

}  // namespace loratrain

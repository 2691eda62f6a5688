#pragma once

#include <string>

#include "io/json_text.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// The text model's part of a config.json that describes a larger model.

/// The wrapper (a multimodal model around a text model) of the config.json's model_type; null:
/// none.
const Wrapper* wrapper_of(const Json& document);

/// Config of the wrapper's text model: text_config, or the whole document of a flat wrapper. Adds
/// what the config around it says of the text model: tied embeddings (Wrapper::tie_key) and
/// quantization_config. Throws InputError at `where` if there is no text_config.
Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where);

/// Config of the text model: text_config() of a wrapper, otherwise the document.
Json text_document(const Json& document, const std::string& where);

}  // namespace loratrain

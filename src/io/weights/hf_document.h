#pragma once

#include <string>

#include "io/json_text.h"
#include "io/weights/hf_family.h"

namespace loratrain {

/// What the model around a text model is, by the model_type of its config.json; null: none.
const Wrapper* wrapper_of(const Json& document);

/// text_config, or the whole document of a flat wrapper, with what the config around it says of
/// it: tied embeddings (Wrapper::tie_key) and quantization_config. InputError at `where` if there
/// is none.
Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where);

/// config.json of the text model: text_config of a wrapper, else the document.
Json text_document(const Json& document, const std::string& where);

}  // namespace loratrain

#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// What a person who compares with transformers must know of a config.json that parse_hf_config()
/// accepts: dropout of the base, which transformers applies in training mode, config.json naming it
/// or not, and nobody here. "" = it has none.
std::string base_dropout_note(const std::string& config_text);

/// That, sizes that config.json leaves to the family, and keys that mean something in other
/// families and nothing in this one; none = nothing to say.
std::vector<std::string> hf_config_notes(const std::string& config_text);

}  // namespace loratrain

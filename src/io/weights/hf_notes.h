#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// Notes that import-hf prints about a config.json.

/// Note on dropout of the base model, for a comparison with transformers: transformers applies that
/// dropout in training mode, even where config.json does not give it; loratrain never does. "" =
/// the model has no such dropout. `config_text` is a config.json that parse_hf_config() accepts.
std::string base_dropout_note(const std::string& config_text);

/// All notes on a config.json: base_dropout_note(), sizes that config.json leaves to the family,
/// and keys that have a meaning only in other families. Empty = no notes.
std::vector<std::string> hf_config_notes(const std::string& config_text);

}  // namespace loratrain

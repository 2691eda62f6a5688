#pragma once

#include <string>

namespace loratrain {

/// Copies what a Hugging Face folder has of a tokenizer and its chat template into `dir`, each file
/// atomically; nothing where `base` is no folder here, as a hub name. A file that cannot be copied
/// is a warning.
void copy_tokenizer_files(const std::string& base, const std::string& dir);

}  // namespace loratrain

#pragma once

#include <regex>
#include <string>

namespace loratrain {

/// A regular expression for whole names. It does not backtrack, which could double its time with
/// every letter. Throws std::regex_error if the text is not one.
std::regex name_regex(const std::string& pattern);
/// As name_regex(), for names or their ends after a dot, as PEFT's get_pattern_key.
std::regex name_end_regex(const std::string& pattern);

/// The name of the list of layers, without a layer's number (layers_pattern).
inline constexpr const char* layer_list = "model.layers";

}  // namespace loratrain

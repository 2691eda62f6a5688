#pragma once

#include <regex>
#include <string>

namespace loratrain {

/// A regular expression for whole names, without backtracking, whose time may double with every
/// letter. std::regex_error where it is none.
std::regex name_regex(const std::string& pattern);
/// For names or their ends behind a dot, as PEFT's get_pattern_key.
std::regex name_end_regex(const std::string& pattern);

/// Of the layers' list without its number, which layers_pattern is for.
inline constexpr const char* layer_list = "model.layers";

}  // namespace loratrain

#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace loratrain {

/// InputError at `where` unless the file says that it is in one of these formats.
void check_format(const std::string& where, std::string_view found,
                  std::initializer_list<std::string_view> known, const std::string& hint = "");

}  // namespace loratrain

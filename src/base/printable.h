#pragma once

#include <string>
#include <string_view>

namespace loratrain {

/// The text as a terminal may be given it: control characters other than newlines and tabs, which
/// could move its cursor or change its state, become "\\x1b" and the like.
std::string printable(std::string_view text);

}  // namespace loratrain

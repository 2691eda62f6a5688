#pragma once

#include <string>
#include <string_view>

namespace loratrain {

/// The text as a terminal may be given it: "\\x1b" and the like for control characters other than
/// newlines and tabs, which could move its cursor or change its state, and for characters that turn
/// the direction of writing round or cannot be seen.
std::string printable(std::string_view text);

}  // namespace loratrain

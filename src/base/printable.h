#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace loratrain {

/// Bytes of the character of UTF-8 that begins there; 0 = none does.
std::size_t utf8_bytes(std::string_view text, std::size_t at);

/// The text as a terminal may be given it: "\\x1b" and the like for control characters other than
/// newlines and tabs, which could move its cursor or change its state, for characters that turn the
/// direction of writing round or cannot be seen, and for bytes that are not UTF-8: what is returned
/// always is.
std::string printable(std::string_view text);

}  // namespace loratrain

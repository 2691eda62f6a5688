#include "base/printable.h"

#include <algorithm>
#include <cstddef>

namespace loratrain {

namespace {

bool is_control(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

/// Of terminals that take each byte for a character.
bool is_second_control(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 && byte <= 0x9f;
}

bool is_continuation(std::string_view text, std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
}

/// Bytes of the character of UTF-8 that begins there; 0 = none does.
std::size_t character_bytes(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    const std::size_t bytes = first < 0xe0 ? 2 : (first < 0xf0 ? 3 : 4);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (!is_continuation(text, at + i)) return 0;
    }
    return bytes;
}

/// U+0080 to U+009F, the second set of control characters; U+2028 to U+202E and U+2066 to U+2069,
/// ends of lines and turns of the direction.
bool is_hidden(std::string_view character) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
    if (character.size() == 2) return byte(0) == 0xc2 && byte(1) <= 0x9f;
    if (character.size() != 3 || byte(0) != 0xe2) return false;
    const bool turns = byte(1) == 0x80 && byte(2) >= 0xa8 && byte(2) <= 0xae;
    return turns || (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

void append_escaped(std::string& out, char c) {
    static constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t bytes = character_bytes(text, i);
        const std::string_view character = text.substr(i, bytes);
        if (bytes == 0 || (bytes == 1 && is_control(text[i]))) {
            const bool shown = bytes == 0 && !is_second_control(text[i]);
            shown ? out.push_back(text[i]) : append_escaped(out, text[i]);
        } else if (!is_hidden(character)) {
            out += character;
        } else if (bytes == 2) {
            append_escaped(out, character[1]);
        } else {
            for (const char c : character) append_escaped(out, c);
        }
        i += std::max<std::size_t>(bytes, 1);
    }
    return out;
}

}  // namespace loratrain

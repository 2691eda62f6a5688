#include "base/printable.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace loratrain {

namespace {

bool is_control(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

bool is_continuation(std::string_view text, std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
}

/// U+0080 to U+009F, the second set of control characters.
bool is_wide_control(std::string_view character) {
    return character.size() == 2 && character[0] == '\xc2' &&
           static_cast<unsigned char>(character[1]) <= 0x9f;
}

struct Range {
    std::string_view first, last;
};
/// Ends of lines, turns of the direction, and what has no width, but the two that join and part
/// letters of words: U+061C, U+200B, U+200E and U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF.
constexpr Range hidden[] = {{"\xd8\x9c", "\xd8\x9c"},         {"\xe2\x80\x8b", "\xe2\x80\x8b"},
                            {"\xe2\x80\x8e", "\xe2\x80\x8f"}, {"\xe2\x80\xa8", "\xe2\x80\xae"},
                            {"\xe2\x81\xa0", "\xe2\x81\xa9"}, {"\xef\xbb\xbf", "\xef\xbb\xbf"}};

/// Of characters of UTF-8; comparing bytes orders these as their numbers do.
bool is_hidden(std::string_view character) {
    return std::any_of(std::begin(hidden), std::end(hidden), [&](const Range& range) {
        return character.size() == range.first.size() && range.first <= character &&
               character <= range.last;
    });
}

void append_escaped(std::string& out, char c) {
    static constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
}

}  // namespace

std::size_t utf8_bytes(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    const std::size_t bytes = first < 0xe0 ? 2 : (first < 0xf0 ? 3 : 4);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (!is_continuation(text, at + i)) return 0;
    }
    if (bytes == 2) return 2;
    const auto second = static_cast<unsigned char>(text[at + 1]);
    const bool is_short = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool is_surrogate = first == 0xed && second > 0x9f;
    const bool is_beyond = first == 0xf4 && second > 0x8f;
    return is_short || is_surrogate || is_beyond ? 0 : bytes;
}

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t bytes = utf8_bytes(text, i);
        const std::string_view character = text.substr(i, bytes);
        if (bytes == 0 || (bytes == 1 && is_control(text[i]))) {
            append_escaped(out, text[i]);
        } else if (is_wide_control(character)) {
            append_escaped(out, character[1]);
        } else if (is_hidden(character)) {
            for (const char c : character) append_escaped(out, c);
        } else {
            out += character;
        }
        i += std::max<std::size_t>(bytes, 1);
    }
    return out;
}

}  // namespace loratrain

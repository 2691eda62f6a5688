#include "base/printable.h"

#include <cstddef>

namespace loratrain {

namespace {

bool is_control(unsigned char c) {
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
}

/// UTF-8 has U+0080 to U+009F, the second set of control characters, as two bytes.
bool is_second_control(std::string_view text, std::size_t at) {
    if (text[at] != '\xc2' || at + 1 >= text.size()) return false;
    const auto next = static_cast<unsigned char>(text[at + 1]);
    return next >= 0x80 && next <= 0x9f;
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
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (is_second_control(text, i)) {
            append_escaped(out, text[++i]);
        } else if (is_control(static_cast<unsigned char>(text[i]))) {
            append_escaped(out, text[i]);
        } else {
            out += text[i];
        }
    }
    return out;
}

}  // namespace loratrain

#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

namespace loratrain {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
    }
    return row[b.size()];
}

std::size_t allowed_distance(std::size_t letters) {
    if (letters < 2) return 0;
    if (letters < 4) return 1;
    return std::max<std::size_t>(2, letters / 3);
}

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

std::string join(const std::vector<std::string>& words, std::string_view separator) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i > 0) text += separator;
        text += words[i];
    }
    return text;
}

std::string some_of(const std::vector<std::string>& words, std::size_t most) {
    if (words.size() <= most) return join(words, ", ");
    const std::vector<std::string> first(words.data(), words.data() + most);
    return cat(join(first, ", "), " and ", words.size() - most, " more");
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    std::string best;
    std::size_t best_distance = allowed_distance(word.size()) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t longest = std::max(word.size(), candidate.size());
        if (longest - std::min(word.size(), candidate.size()) >= best_distance) continue;
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string format_fixed(double value, int decimals) {
    std::array<char, 512> buffer{};
    const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
    return {buffer.data(), std::min(buffer.size() - 1, static_cast<std::size_t>(length))};
}

std::string three_digits(double value) {
    constexpr int most_decimals = 9;
    if (!(value >= 5e-10)) return "0";
    const int decimals = 2 - static_cast<int>(std::floor(std::log10(value)));
    return format_fixed(value, std::clamp(decimals, 0, most_decimals));
}

std::string format_exact(double value) {
    std::array<char, 64> buffer{};
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), result.ptr};
}

std::string human_bytes(std::uint64_t bytes) {
    static constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    // 1023.96 would be printed as 1024.0.
    while (value >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < units.size()) {
        value /= 1024.0;
        ++unit;
    }
    return unit == 0 ? cat(bytes, " B") : format_fixed(value, 1) + " " + units[unit];
}

constexpr double longest_duration = 1e12;  ///< in seconds; fits in all integers

std::string human_duration(double seconds) {
    if (!std::isfinite(seconds) || seconds > longest_duration) return "unknown";
    const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
    if (total < 60) return cat(total, " s");
    if (total < 3600) return cat(total / 60, " min ", total % 60, " s");
    return cat(total / 3600, " h ", total % 3600 / 60, " min");
}

std::string text_table(const std::vector<TextRow>& rows, std::size_t left) {
    if (rows.empty()) return "";
    std::vector<std::size_t> width(rows.front().size(), 0);
    for (const TextRow& row : rows) {
        for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    }
    std::string text;
    for (const TextRow& row : rows) {
        std::string line;
        for (std::size_t c = 0; c < row.size(); ++c) {
            const std::string fill(width[c] - row[c].size(), ' ');
            line += "  " + (c < left ? row[c] + fill : fill + row[c]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

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

std::optional<std::int32_t> number_after(std::string_view text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return std::nullopt;
    text.remove_prefix(prefix.size());
    std::int32_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const bool whole = error == std::errc() && stop == end && text.front() != '-';
    return whole ? std::optional(number) : std::nullopt;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
    std::string lines;
    std::size_t column = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t word = std::min(text.find_first_not_of(' ', begin), text.size());
        const std::size_t end = std::min(text.find(' ', word), text.size());
        if (begin > 0 && column + (end - begin) > width) {
            lines.append("\n").append(indent, ' ');
            column = indent;
        } else {
            word = begin;  // with the blanks before it
        }
        lines.append(text.substr(word, end - word));
        column += end - word;
        begin = end;
    }
    return lines;
}

}  // namespace loratrain

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace loratrain {

/// Texts for people: joined, counted, measured, aligned, and safe to print.

/// The arguments written one after another with operator<<.
template <class... Args>
std::string cat(const Args&... args) {
    std::ostringstream out;
    ((out << args), ...);
    return out.str();
}

std::string join(const std::vector<std::string>& words, std::string_view separator);

/// "a, b, c and 7 more": the first `most` words, and how many follow.
std::string some_of(const std::vector<std::string>& words, std::size_t most);

/// The candidate with the smallest edit distance to `word`, where a swap of two neighbours counts
/// once; "" if none is near. At most a third of the letters may differ, two in words of 4 to 8
/// letters, one in words of 2 or 3.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// The number that is all of `text` after `prefix`: 7 of "step-007" after "step-".
std::optional<std::int32_t> number_after(std::string_view text, std::string_view prefix);

/// "512 B", "3.4 MiB", "55.0 GiB".
std::string human_bytes(std::uint64_t bytes);

/// "42 s", "3 min 20 s", "5 h 12 min"; "unknown" if not finite.
std::string human_duration(double seconds);

/// Fixed-point text: format_fixed(3.14159, 2) == "3.14".
std::string format_fixed(double value, int decimals);

/// Three digits of a value, at least 0: "0.0867", "5.20", "347". "0" below 5e-10.
std::string three_digits(double value);

/// The shortest text that reads back as the same double.
std::string format_exact(double value);

/// Cells of one row of a table.
using TextRow = std::vector<std::string>;

/// Lines of columns, each as wide as its widest cell, with two blanks before each column. The first
/// `left` columns are flush left, the others flush right. All rows have as many cells as the first.
std::string text_table(const std::vector<TextRow>& rows, std::size_t left);

/// Columns of a terminal that texts for people keep to.
inline constexpr std::size_t terminal_columns = 80;

/// `text` in lines of at most `width` bytes, broken at blanks; lines after the first begin with
/// `indent` blanks. A longer word has a line of its own. Ends without a line break.
std::string wrapped(std::string_view text, std::size_t indent,
                    std::size_t width = terminal_columns);

/// Bytes of the UTF-8 character that begins at `text[at]`; 0 = no character begins there.
std::size_t utf8_bytes(std::string_view text, std::size_t at);

/// The text as a terminal may show it; always valid UTF-8. Written as "\x1b" and the like are
///   - control characters other than newline and tab, which could move the cursor or change modes,
///   - characters that are invisible or reverse the direction of writing,
///   - bytes that are not UTF-8.
std::string printable(std::string_view text);

}  // namespace loratrain

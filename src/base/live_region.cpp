#include "base/live_region.h"

#include <algorithm>

#include "base/text.h"

namespace loratrain {

namespace {

bool begins_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U;
}

bool is_control_byte(char byte) {
    return static_cast<unsigned char>(byte) < 0x20U || byte == 0x7f;
}

std::size_t columns_of(const std::string& line) {
    return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), begins_character));
}

/// A terminal that has become narrower breaks the lines it shows.
std::size_t rows_of(std::size_t columns, std::size_t width) {
    return std::max<std::size_t>(1, (columns + width - 1) / width);
}

}  // namespace

std::string fit_line(std::string_view text, std::size_t columns) {
    std::string line;
    std::size_t used = 0;
    for (const char byte : text) {
        if (begins_character(byte) && ++used > columns) break;
        line += is_control_byte(byte) ? ' ' : byte;
    }
    return line;
}

std::string LiveRegion::draw(std::string_view above, const std::vector<std::string>& lines,
                             TerminalSize size) {
    const auto width = static_cast<std::size_t>(std::max(1, size.columns));
    std::size_t rows = 0;
    for (const std::size_t columns : drawn_) rows += rows_of(columns, width);
    std::string text;
    if (rows > 0) text = cat("\r\x1b[", rows, "A\x1b[J");
    text += above;
    drawn_.clear();
    const auto most = static_cast<std::size_t>(std::max(1, size.rows - 1));
    for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) {
        const std::string line = fit_line(lines[i], width - 1);
        drawn_.push_back(columns_of(line));
        text += line + '\n';
    }
    return text;
}

}  // namespace loratrain

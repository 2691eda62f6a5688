#include "base/text_table.h"

#include <algorithm>

namespace loratrain {

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

}  // namespace loratrain

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace loratrain::html {

/// Pieces of HTML: escaped texts and tables.

/// Text for elements and quoted attributes: & < > " ' become entities, other control characters
/// than tab and line feed become U+FFFD.
std::string escape(std::string_view text);

/// A table's cell: escaped text, or markup made by this program; `number` is set to the right.
struct Cell {
    std::string markup;
    bool number = false;
};
Cell text_cell(std::string_view text);
Cell number_cell(std::string_view text);
Cell markup_cell(std::string markup);

/// <table> with a head; `numeric` heads stand over numbers and are set to the right.
std::string table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows);

}  // namespace loratrain::html

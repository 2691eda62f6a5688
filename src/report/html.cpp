#include "report/html.h"

#include "base/text.h"

namespace loratrain::html {

namespace {

std::string row(const std::vector<Cell>& cells, const std::string& tag) {
    std::string markup = "<tr>";
    for (const Cell& cell : cells) {
        markup += cat("<", tag, cell.number ? " class=\"n\">" : ">", cell.markup, "</", tag, ">");
    }
    return markup + "</tr>\n";
}

}  // namespace

std::string escape(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default: {
                const auto code = static_cast<unsigned char>(c);
                const bool control = (code < 0x20 && c != '\n' && c != '\t') || code == 0x7f;
                escaped += control ? "\xef\xbf\xbd" : std::string(1, c);
            }
        }
    }
    return escaped;
}

Cell text_cell(std::string_view text) {
    return {escape(text), false};
}

Cell number_cell(std::string_view text) {
    return {escape(text), true};
}

Cell markup_cell(std::string markup) {
    return {std::move(markup), false};
}

std::string table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows) {
    std::string markup = "<div class=\"scroll\"><table>\n<thead>" + row(head, "th") + "</thead>\n";
    markup += "<tbody>\n";
    for (const auto& cells : rows) markup += row(cells, "td");
    return markup + "</tbody></table></div>\n";
}

}  // namespace loratrain::html

#include <cstddef>

#include "base/text.h"
#include "io/run_files/run_account.h"
#include "report/account_text.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

using html::Cell;
using html::number_cell;
using html::text_cell;

std::string account_table(const std::vector<TextRow>& text) {
    std::vector<std::vector<Cell>> rows;
    for (const TextRow& row : text) {
        std::vector<Cell>& cells = rows.emplace_back();
        for (const std::string& cell : row) {
            cells.push_back(cells.empty() ? text_cell(cell) : number_cell(cell));
        }
    }
    const std::vector<Cell> head = rows.front();
    rows.erase(rows.begin());
    return html::table(head, rows);
}

std::string paragraph(const std::string& text) {
    return "<p class=\"note\">" + html::escape(text) + "</p>\n";
}

/// Of what the table does not have all.
std::string missing_parts(const RunAccount& last, std::size_t starts, std::size_t known) {
    std::string markup;
    if (last.until_checkpoint) {
        markup += paragraph(
            "This start still trains or was killed: the table has the time of rank 0 "
            "until the last checkpoint.");
    }
    if (starts <= known) return markup;
    return markup +
           paragraph(cat(starts - known, starts - known == 1 ? " start" : " starts", " of ", starts,
                         " ended before the first checkpoint, not counted."));
}

std::string caption(const RunAccount& last, std::size_t starts) {
    const std::string of = starts > 1 ? " in the last start" : "";
    if (last.until_checkpoint) return cat("Seconds of rank 0", of, ".");
    return cat("Seconds of ", last.ranks, last.ranks == 1 ? " rank" : " ranks", of,
               ": mean, minimum and maximum over the ranks.");
}

}  // namespace

std::string account(const RunRecord& run) {
    const OrderedJson json = parse_json_or_discard(run.provenance_json);
    if (!json.is_object()) return "";
    const std::vector<RunAccount> accounts = accounts_in(json);
    if (accounts.empty()) return "";
    const RunAccount& last = accounts.back();
    std::string markup = "<h2>Where the time went</h2>\n";
    markup += account_table(account_rows(last, sum_of(accounts), accounts.size()));
    markup += paragraph(caption(last, accounts.size()));
    const std::vector<TextRow> kinds = kind_rows(last);
    if (!kinds.empty()) markup += account_table(kinds);
    for (const std::string& note : account_notes(last, sum_of(accounts), accounts.size())) {
        markup += paragraph(note);
    }
    return markup + missing_parts(last, json["starts"].size(), accounts.size());
}

}  // namespace loratrain::report

#include "base/text.h"
#include "io/json_text.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

using html::Cell;

std::string plain_text(const OrderedJson& value) {
    if (value.is_string()) return value.get<std::string>();
    return dump_json(value);
}

/// Any JSON as nested definition lists; lists of plain values line by line.
std::string value_markup(const OrderedJson& value) {
    if (value.is_object()) {
        std::string markup = "<dl>";
        for (const auto& [key, entry] : value.items()) {
            markup += "<dt>" + html::escape(key) + "</dt><dd>" + value_markup(entry) + "</dd>\n";
        }
        return markup + "</dl>";
    }
    if (value.is_array()) {
        std::string markup;
        for (const OrderedJson& entry : value) {
            if (!markup.empty() && !entry.is_object()) markup += "\n";
            markup += value_markup(entry);
        }
        return markup;
    }
    return html::escape(plain_text(value));
}

std::string text_of(const OrderedJson& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? "" : plain_text(*found);
}

OrderedJson list_of(const OrderedJson& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_array() ? *found : OrderedJson::array();
}

std::string starts_markup(const OrderedJson& starts) {
    std::vector<std::vector<Cell>> rows;
    for (const OrderedJson& start : starts) {
        if (!start.is_object()) continue;
        rows.push_back(
            {html::number_cell(std::to_string(rows.size() + 1)),
             html::text_cell(text_of(start, "started")), html::text_cell(text_of(start, "ended")),
             html::text_cell(text_of(start, "reason")),
             html::text_cell(text_of(start, "continues")), html::text_cell(text_of(start, "git"))});
    }
    return html::table(
        {html::number_cell("start"), html::text_cell("started"), html::text_cell("ended"),
         html::text_cell("reason"), html::text_cell("continues"), html::text_cell("commit")},
        rows);
}

std::string details(const std::string& title, const std::string& markup) {
    return "<details><summary>" + html::escape(title) + "</summary>\n" + markup + "</details>\n";
}

}  // namespace

std::string provenance(const RunRecord& run) {
    std::string markup = "<h2>Provenance</h2>\n";
    OrderedJson json = parse_json_or_discard(run.provenance_json);
    if (json.is_object()) {
        OrderedJson starts = list_of(json, "starts");
        markup += starts_markup(starts);
        for (std::size_t i = 0; i < starts.size(); ++i) {
            if (starts[i].is_object()) starts[i].erase("account");  // a section of its own
            markup += details(cat("Start ", i + 1, ": command, versions, hosts"),
                              value_markup(starts[i]));
        }
        json.erase("starts");
        json.erase("account");
        json.erase("job");
        markup += details("Checksums and seeds", value_markup(json));
    }
    return markup + details("Job (resolved.yaml)", "<pre>" + html::escape(run.job_yaml) + "</pre>");
}

}  // namespace loratrain::report

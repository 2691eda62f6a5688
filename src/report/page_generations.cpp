#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "io/json_text.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

constexpr std::size_t most_shown_texts = 5;

std::vector<OrderedJson> texts_of(const std::string& lines) {
    std::vector<OrderedJson> texts;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
        OrderedJson text = parse_json_or_discard(line);
        if (text.is_object()) texts.push_back(std::move(text));
    }
    return texts;
}

bool is_true(const OrderedJson& text, const char* key) {
    const auto found = text.find(key);
    return found != text.end() && found->is_boolean() && found->get<bool>();
}

std::string share(std::ptrdiff_t count, std::size_t of) {
    return cat(count, " (", format_fixed(100.0 * static_cast<double>(count) / double(of), 1), "%)");
}

/// Decoded where that was done, else ids.
std::string shown_text(const OrderedJson& text, const char* key) {
    const auto decoded = text.find(cat(key, "_text"));
    if (decoded != text.end() && decoded->is_string()) return decoded->get<std::string>();
    const auto ids = text.find(key);
    return ids != text.end() ? dump_json(*ids) : "";
}

std::vector<html::Cell> totals_row(const std::string& adapter,
                                   const std::vector<OrderedJson>& texts) {
    const auto count = [&](const auto& is_one) {
        return std::count_if(texts.begin(), texts.end(), is_one);
    };
    const auto scored = count([](const OrderedJson& text) { return text.contains("match"); });
    const auto right = count([](const OrderedJson& text) { return is_true(text, "match"); });
    const auto stopped = count([](const OrderedJson& text) { return is_true(text, "stopped"); });
    const auto equal = count([](const OrderedJson& text) {
        return text.contains("reference") &&
               text.value("generated", OrderedJson()) == text.value("reference", OrderedJson());
    });
    const bool all_scored = scored == std::ssize(texts);
    return {html::text_cell(adapter), html::number_cell(std::to_string(texts.size())),
            html::number_cell(all_scored ? share(right, texts.size()) : "-"),
            html::number_cell(share(equal, texts.size())),
            html::number_cell(share(stopped, texts.size()))};
}

std::string details_of(const std::string& adapter, const std::vector<OrderedJson>& texts) {
    std::vector<std::vector<html::Cell>> rows;
    for (const OrderedJson& text : texts) {
        if (rows.size() == most_shown_texts) break;
        rows.push_back({html::text_cell(shown_text(text, "prompt")),
                        html::text_cell(shown_text(text, "generated")),
                        html::text_cell(shown_text(text, "reference"))});
    }
    return "<details><summary>" + html::escape("Generations of " + adapter) + "</summary>\n" +
           html::table({html::text_cell("prompt"), html::text_cell("generated"),
                        html::text_cell("reference")},
                       rows) +
           "</details>\n";
}

}  // namespace

std::string generations(const RunRecord& run) {
    std::vector<std::vector<html::Cell>> totals;
    std::string details;
    for (std::size_t a = 0; a < run.generations.size(); ++a) {
        const std::vector<OrderedJson> texts = texts_of(run.generations[a]);
        if (texts.empty()) continue;
        const std::string& name = run.job.adapters[a].name;
        totals.push_back(totals_row(name, texts));
        details += details_of(name, texts);
    }
    if (totals.empty()) return "";
    return "<h2>Generations</h2>\n" +
           html::table({html::text_cell("adapter"), html::number_cell("generations"),
                        html::number_cell("right answers"), html::number_cell("equal tokens"),
                        html::number_cell("ended with a stop token")},
                       totals) +
           "<p class=\"note\">Greedy decoding, with the adapter's last state. Right answers: "
           "scripts/exact_match.py finds the same text by its pattern in generation and reference. "
           "Equal tokens: the whole generation equals the reference.</p>\n" +
           details;
}

}  // namespace loratrain::report

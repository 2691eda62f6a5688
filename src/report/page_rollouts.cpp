#include <sstream>

#include "base/text.h"
#include "io/json_text.h"
#include "io/tokens/token_file.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

constexpr std::size_t most_shown_rollouts = 16;  // a group or two

/// Prompt and text of a line: characters of a byte-level model, else ids.
struct Parts {
    std::string prompt;
    std::string text;
};

Parts parts_of(const OrderedJson& line, bool bytes) {
    const auto ids = line.at("input_ids").get<std::vector<std::int32_t>>();
    const auto labels = line.at("labels").get<std::vector<std::int32_t>>();
    Parts parts;
    for (std::size_t t = 0; t < ids.size() && t < labels.size(); ++t) {
        std::string& part = labels[t] == no_target ? parts.prompt : parts.text;
        if (!bytes) part += cat(part.empty() ? "" : " ", ids[t]);
        if (bytes && ids[t] < byte_bos) part += static_cast<char>(ids[t]);
    }
    return parts;
}

std::string number_at(const OrderedJson& line, const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? format_fixed(found->get<double>(), 3) : "-";
}

std::string table_of(const RunRecord& run, std::size_t a) {
    const AdapterJob& adapter = run.job.adapters[a];
    const bool bytes = run.job.dataset(*adapter.rewards.prompts).tokenizer == Tokenizer::bytes;
    std::vector<std::vector<html::Cell>> rows;
    std::string step;
    std::istringstream lines(run.rollouts[a]);
    for (std::string text; rows.size() < most_shown_rollouts && std::getline(lines, text);) {
        const OrderedJson line = parse_json_or_discard(text);
        try {
            const Parts parts = parts_of(line, bytes);
            const auto& advantages = line.at("advantages");
            step = dump_json(line.at("adapter_step"));
            rows.push_back({html::text_cell(parts.prompt), html::text_cell(parts.text),
                            html::number_cell(number_at(line, "reward")),
                            html::number_cell(format_fixed(
                                advantages.at(advantages.size() - 1).get<double>(), 3))});
        } catch (const OrderedJson::exception&) {
            break;
        }
    }
    if (rows.empty()) return "";
    return "<details><summary>" +
           html::escape(cat("Texts of ", adapter.name, " after step ", step)) + "</summary>\n" +
           html::table({html::text_cell("prompt"), html::text_cell("text"),
                        html::number_cell("reward"), html::number_cell("advantage")},
                       rows) +
           "</details>\n";
}

}  // namespace

std::string rollouts(const RunRecord& run) {
    std::string details;
    for (std::size_t a = 0; a < run.rollouts.size(); ++a) {
        if (!run.rollouts[a].empty()) details += table_of(run, a);
    }
    if (details.empty()) return "";
    return "<h2>Rollouts</h2>\n<p class=\"note\">The newest texts that adapters with rewards have "
           "written, and what they have learned from them.</p>\n" +
           details;
}

}  // namespace loratrain::report

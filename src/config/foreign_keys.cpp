#include "config/foreign_keys.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "config/foreign_key_table.h"

namespace loratrain {

namespace {

/// Among words that spaces separate.
bool lists_word(const char* words, const std::string& word) {
    std::istringstream in(words);
    for (std::string each; in >> each;) {
        if (each == word) return true;
    }
    return false;
}

std::string value_word(const YamlNode& value) {
    if (value.kind == YamlNode::Kind::scalar) return value.text;
    return value.children.empty() ? "null" : "";
}

}  // namespace

const ForeignKey* foreign_key(const std::string& key, const std::string& section) {
    const ForeignKey* found = nullptr;
    for (const ForeignKey& row : foreign_keys) {
        const bool nearer = found == nullptr || section == row.section;
        if (nearer && lists_word(row.keys, key)) found = &row;
    }
    return found;
}

bool is_harmless(const ForeignKey& foreign, const YamlNode& value) {
    return lists_word(foreign.harmless, "*") || lists_word(foreign.harmless, value_word(value));
}

std::string answer_to(const ForeignKey& foreign, const std::string& section) {
    const std::string ours = foreign.ours;
    std::string more = foreign.answer;
    if (ours.empty()) {
        return more.find("leave") != std::string::npos ? more : cat(more, "; leave the key out");
    }
    std::string text;
    if (section == foreign.section) {
        text = cat("did you mean '", ours, "'?");
    } else {
        text = cat("here it is ", key_place(foreign.section, ours));
    }
    return more.empty() ? text : cat(text, section == foreign.section ? " " : ": ", more);
}

std::vector<std::string> names_elsewhere(const std::string& section, const std::string& key) {
    std::vector<std::string> names;
    for (const ForeignKey& row : foreign_keys) {
        if (section != row.section || key != row.ours) continue;
        std::istringstream in(row.keys);
        for (std::string name; in >> name;) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace loratrain

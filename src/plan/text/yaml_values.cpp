#include "plan/text/yaml_values.h"

#include "base/error.h"

namespace loratrain::plan_yaml {

std::string yes_no(bool value) {
    return value ? "true" : "false";
}

std::string numbers(const std::vector<std::int32_t>& values) {
    std::string text;
    for (const std::int32_t value : values) text += cat(text.empty() ? "" : ", ", value);
    return cat("[", text, "]");
}

std::string in_quotes(std::string_view text) {
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (byte < 0x20 || byte == 0x7f) {
            result += "\\x";
            result += digits[byte >> 4U];
            result += digits[byte & 15U];
        } else {
            result += c;
        }
    }
    return result + '"';
}

void fail(std::string_view what) {
    throw Error(cat("plan text: ", what));
}

bool parse_bool(std::string_view text) {
    if (text != "true" && text != "false") fail(cat("'", text, "' is neither true nor false"));
    return text == "true";
}

std::vector<std::string> fields_of(const YAML::Node& node) {
    std::vector<std::string> fields;
    for (const auto& field : node) fields.push_back(field.as<std::string>());
    return fields;
}

Map::Map(const YAML::Node& node) : node_(node) {
    if (!node.IsMap()) fail("expected a map");
}

YAML::Node Map::at(const char* key) const {
    const YAML::Node found = node_[key];
    if (!found) fail(cat("key ", key, " is missing"));
    return found;
}

}  // namespace loratrain::plan_yaml

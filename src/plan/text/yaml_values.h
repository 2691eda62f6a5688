#pragma once

#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "config/job_words.h"

/// Values in the text form of plans and windows: internal to the files beside this one.
/// Reading throws Error ("plan text: ...") on anything that the writers would not have written.
namespace loratrain::plan_yaml {

std::string yes_no(bool value);

/// "[1, 2]".
std::string numbers(const std::vector<std::int32_t>& values);

/// A YAML string that holds any bytes.
std::string in_quotes(std::string_view text);

[[noreturn]] void fail(std::string_view what);

bool parse_bool(std::string_view text);

template <class Number>
Number parse_number(std::string_view text) {
    Number value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) {
        fail(cat("'", text, "' is no number"));
    }
    return value;
}

template <class Enum, std::size_t size>
Enum parse_word(const std::array<Word<Enum>, size>& words, std::string_view text) {
    for (const auto& entry : words) {
        if (text == entry.text) return entry.value;
    }
    fail(cat("'", text, "' is not known"));
}

/// The texts of a sequence.
std::vector<std::string> fields_of(const YAML::Node& node);

/// The numbers of a sequence.
template <class Number>
std::vector<Number> parse_numbers(const YAML::Node& node) {
    std::vector<Number> values;
    for (const std::string& field : fields_of(node)) values.push_back(parse_number<Number>(field));
    return values;
}

/// A map whose keys that are read must be there; `node` is kept by reference.
class Map {
  public:
    explicit Map(const YAML::Node& node);
    bool has(const char* key) const { return node_[key].IsDefined(); }
    YAML::Node at(const char* key) const;
    std::string text(const char* key) const { return at(key).as<std::string>(); }
    void read(const char* key, std::string& value) const { value = text(key); }
    void read(const char* key, bool& value) const { value = parse_bool(text(key)); }
    template <class Number>
    void read(const char* key, Number& value) const {
        value = parse_number<Number>(text(key));
    }
    /// Where the key is there.
    template <class Value>
    void read_any(const char* key, Value& value) const {
        if (has(key)) read(key, value);
    }

  private:
    const YAML::Node& node_;
};

/// What `read` makes of the text's root node.
template <class Read>
auto parse(const std::string& text, Read read) {
    try {
        return read(YAML::Load(text));
    } catch (const YAML::Exception& error) {
        fail(error.what());
    }
}

}  // namespace loratrain::plan_yaml

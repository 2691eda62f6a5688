#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/archive.h"
#include "base/error.h"
#include "base/text.h"
#include "config/yaml_tree.h"

/// Values as text for people (base/archive.h): YAML or JSON, which one reader reads. Numbers are
/// the shortest text that reads back as the same number. A number that is not finite is null in
/// JSON, and NaN when it is read. Readers throw InputError at "file:line" with the key's path and
/// the value.
namespace loratrain {

/// Words of a message for a text that is refused: "cannot be read as WHAT: ...", and what to do.
struct TextForm {
    std::string_view what{};
    std::string_view hint{};
};

/// The way to a node from the document's root.
struct TextPath {
    const TextPath* outer = nullptr;
    std::string_view key{};  ///< in a map
    std::size_t index = 0;   ///< in a list
    TextForm form{};         ///< of the root
};

/// InputError at the node: "cannot be read as ...: PATH WHAT".
[[noreturn]] void refuse_text(const YamlNode& node, const TextPath& path, std::string_view what);

class TextWriter {
  public:
    static constexpr bool reads = false;

    explicit TextWriter(YamlNode& node) : node_(node) { node_.kind = YamlNode::Kind::map; }

    template <class T>
    void operator()(const char* key, const T& value) {
        if constexpr (archived::is<T, std::optional>) {
            if (value) write(add(key), *value);
        } else {
            write(add(key), value);
        }
    }
    template <class T>
    void unless(const char* key, const T& value, const auto& usual) {
        if (!(value == usual)) write(add(key), value);
    }
    template <class... T>
    void list(const T&... values) {
        node_.kind = YamlNode::Kind::list;
        (write(node_.children.emplace_back(), values), ...);
    }
    template <class T>
    void kind(const char* key, const T& value, const auto& names) {
        TextWriter writer(add(key));
        writer("kind", std::string(names[value.index()]));
        std::visit([&](const auto& of) { fields(writer, archived::fields_of(of)); }, value);
    }
    template <class T>
    void note(const char* key, const T& value) {
        (*this)(key, value);
    }
    void format(const char* name) { (*this)("format", std::string(name)); }

    template <class T>
    static void write(YamlNode& node, const T& value);

  private:
    YamlNode& add(std::string key) {
        YamlNode& child = node_.children.emplace_back();
        child.key = std::move(key);
        return child;
    }
    static void scalar(YamlNode& node, std::string text, bool quoted);

    YamlNode& node_;
};

class TextReader {
  public:
    static constexpr bool reads = true;

    TextReader(const YamlNode& node, const TextPath& path)
        : node_(node), path_(path), known_(node.children.size()) {}

    template <class T>
    void operator()(const char* key, T&& value) {
        const YamlNode* child = find(key);
        using Value = std::remove_reference_t<T>;
        if constexpr (archived::is<Value, std::optional>) {
            value.reset();
            if (child != nullptr) read(*child, {&path_, key}, value.emplace());
        } else {
            if (child == nullptr) missing(key);
            read(*child, {&path_, key}, value);
        }
    }
    template <class T>
    void unless(const char* key, T&& value, const auto& usual) {
        using Value = std::remove_reference_t<T>;
        if (const YamlNode* child = find(key)) {
            read(*child, {&path_, key}, value);
        } else if constexpr (std::is_same_v<decltype(usual), const NoEntries&>) {
            value.clear();
        } else if constexpr (archived::is<Value, Worded> || archived::is<Value, AtLeast>) {
            value.value = usual;
        } else {
            value = usual;
        }
    }
    template <class... T>
    void list(T&&... values) {
        const YamlNode& list = expect(node_, path_, YamlNode::Kind::list);
        if (list.children.size() != sizeof...(values)) wrong_count(sizeof...(values));
        std::size_t i = 0;
        ((read(list.children[i], {&path_, {}, i}, values), ++i), ...);
    }
    template <class T>
    void kind(const char* key, T& value, const auto& names) {
        const YamlNode* child = find(key);
        if (child == nullptr) missing(key);
        const TextPath path{&path_, key};
        TextReader reader(*child, path);
        std::string name;
        reader("kind", name);
        alternative<0>(reader, *child, name, value, names);
        reader.expect_all_known();
    }
    template <class T>
    void note(const char* key, const T& /*value*/) {
        find(key);
    }
    void format(const char* name);

    /// Refuses keys that nobody has asked for.
    void expect_all_known() const;

    template <class T>
    static void read(const YamlNode& node, const TextPath& path, T&& value);

  private:
    const YamlNode* find(std::string_view key);
    [[noreturn]] void missing(std::string_view key) const;
    [[noreturn]] void wrong_count(std::size_t wanted) const;
    static const YamlNode& expect(const YamlNode& node, const TextPath& path, YamlNode::Kind kind);
    static const std::string& text(const YamlNode& node, const TextPath& path);
    [[noreturn]] static void wrong(const YamlNode& node, const TextPath& path,
                                   std::string_view rule);
    static bool flag(const YamlNode& node, const TextPath& path);
    template <class Number>
    static Number number(const YamlNode& node, const TextPath& path);
    template <std::size_t at, class T>
    static void alternative(TextReader& reader, const YamlNode& node, const std::string& name,
                            T& value, const auto& names) {
        if constexpr (at < std::variant_size_v<T>) {
            if (name == names[at]) return fields(reader, value.template emplace<at>());
            alternative<at + 1>(reader, node, name, value, names);
        } else {
            refuse_text(node, reader.path_, cat("is of kind '", name, "', which is not known"));
        }
    }

    const YamlNode& node_;
    const TextPath& path_;
    std::vector<bool> known_;  ///< by child: has been asked for
    std::size_t next_ = 0;     ///< child that is likely asked for next
};

template <class T>
void TextWriter::write(YamlNode& node, const T& value) {
    using namespace archived;
    if constexpr (std::is_same_v<T, bool>) {
        scalar(node, value ? "true" : "false", false);
    } else if constexpr (std::is_floating_point_v<T>) {
        scalar(node, format_exact(value), false);
    } else if constexpr (is_number<T>) {
        scalar(node, std::to_string(value), false);
    } else if constexpr (std::is_same_v<T, std::string>) {
        scalar(node, value, true);
    } else if constexpr (is_id<T>) {
        write(node, static_cast<std::int32_t>(value));
    } else if constexpr (is<T, Worded>) {
        for (const auto& word : value.words) {
            if (word.value == value.value) return scalar(node, std::string(word.text), true);
        }
    } else if constexpr (is<T, Below>) {
        write(node, static_cast<std::int64_t>(value.value));
    } else if constexpr (is<T, AtLeast>) {
        write(node, value.value);
    } else if constexpr (is_named<T>) {
        TextWriter writer(node);
        for (const auto& [name, entry] : value) write(writer.add(name), entry);
    } else if constexpr (is<T, std::vector> || is_array<T>) {
        node.kind = YamlNode::Kind::list;
        for (const auto& entry : value) write(node.children.emplace_back(), entry);
    } else {
        TextWriter writer(node);
        fields(writer, fields_of(value));
    }
}

template <class Number>
Number TextReader::number(const YamlNode& node, const TextPath& path) {
    constexpr bool fraction = std::is_floating_point_v<Number>;
    if constexpr (fraction) {
        if (node.kind == YamlNode::Kind::null) return std::numeric_limits<Number>::quiet_NaN();
    }
    Number value{};
    const std::string& digits = text(node, path);
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, value);
    if (node.quoted || result.ec != std::errc{} || result.ptr != end) {
        wrong(node, path, fraction ? "a number" : "a whole number in range");
    }
    return value;
}

template <class T>
void TextReader::read(const YamlNode& node, const TextPath& path, T&& value) {
    using namespace archived;
    using Value = std::remove_cvref_t<T>;
    if constexpr (std::is_same_v<Value, bool>) {
        value = flag(node, path);
    } else if constexpr (is_number<Value>) {
        value = number<Value>(node, path);
    } else if constexpr (std::is_same_v<Value, std::string>) {
        value = text(node, path);
    } else if constexpr (is_id<Value>) {
        value = static_cast<Value>(number<std::int32_t>(node, path));
    } else if constexpr (is<Value, Worded>) {
        const std::string& found = text(node, path);
        for (const auto& word : value.words) {
            if (found == word.text) return static_cast<void>(value.value = word.value);
        }
        wrong(node, path, "a word that is known here");
    } else if constexpr (is<Value, Below>) {
        const auto found = number<std::uint64_t>(node, path);
        if (found >= value.count) wrong(node, path, cat("less than ", value.count));
        value.value = static_cast<std::remove_reference_t<decltype(value.value)>>(found);
    } else if constexpr (is<Value, AtLeast>) {
        read(node, path, value.value);
        if (!fits(value.value, value.least)) wrong(node, path, cat("at least ", value.least));
    } else if constexpr (is_named<Value>) {
        value.clear();
        for (const YamlNode& child : expect(node, path, YamlNode::Kind::map).children) {
            typename Value::value_type::second_type entry{};
            read(child, {&path, child.key}, entry);
            value.insert(value.end(), {child.key, std::move(entry)});
        }
    } else if constexpr (is<Value, std::vector>) {
        value.clear();
        for (const YamlNode& child : expect(node, path, YamlNode::Kind::list).children) {
            auto& entry = value.emplace_back();
            read(child, {&path, {}, value.size() - 1}, entry);
        }
    } else if constexpr (is_array<Value>) {
        const YamlNode& list = expect(node, path, YamlNode::Kind::list);
        if (list.children.size() != value.size()) TextReader(node, path).wrong_count(value.size());
        for (std::size_t i = 0; i < value.size(); ++i)
            read(list.children[i], {&path, {}, i}, value[i]);
    } else {
        TextReader reader(node, path);
        try {
            fields(reader, value);
        } catch (const Error& error) {
            refuse_text(node, path, error.what());
        }
        reader.expect_all_known();
    }
}

/// Parses a YAML or JSON document. Throws InputError at `where`:line for any other text.
YamlNode parse_document(const std::string& text, const std::string& where,
                        const TextForm& form = {});
/// The tree as YAML: mappings as blocks, or in braces if they fit into a line; keys in the order of
/// the fields.
std::string yaml_text(const YamlNode& root);
/// The tree as JSON, indented by 2; lists of plain values in one line.
std::string json_text(const YamlNode& root);

template <class T>
YamlNode text_tree(const T& value) {
    YamlNode root;
    TextWriter::write(root, value);
    return root;
}

/// Reads a value from a text that yaml_text() or json_text() wrote.
template <class T>
T read_text_as(const std::string& text, const std::string& where, const TextForm& form = {}) {
    T value{};
    const TextPath path{.form = form};
    TextReader::read(parse_document(text, where, form), path, value);
    return value;
}

}  // namespace loratrain

#include "config/text_archive.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace loratrain {

namespace {

using Kind = YamlNode::Kind;

constexpr std::size_t widest = 100;
constexpr std::size_t indented = 2;
constexpr std::size_t longest_shown = 160;

std::string path_text(const TextPath& path) {
    if (path.outer == nullptr) return "";
    const std::string outer = path_text(*path.outer);
    if (path.key.empty()) return cat(outer, "[", path.index, "]");
    return cat(outer, outer.empty() ? "" : ".", path.key);
}

const TextForm& root_form(const TextPath& path) {
    return path.outer == nullptr ? path.form : root_form(*path.outer);
}

[[noreturn]] void refuse(const std::string& where, const TextForm& form, std::string_view why) {
    const std::string what(form.what);
    throw InputError(where, cat(what.empty() ? "" : "cannot be read as " + what + ": ", why),
                     std::string(form.hint));
}

/// In double quotes, as YAML and JSON have it.
std::string in_quotes(std::string_view text) {
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string result = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t bytes = utf8_bytes(text, i);
        if (bytes == 0) {
            result += "\xef\xbf\xbd";  // the replacement character
        } else if (byte < 0x20 || byte == 0x7f) {
            result += "\\u00";
            result += digits[byte >> 4U];
            result += digits[byte & 15U];
        } else {
            if (byte == '"' || byte == '\\') result += '\\';
            result += text.substr(i, bytes);
        }
        i += std::max<std::size_t>(bytes, 1);
    }
    return result + '"';
}

/// A YAML text that needs no quotes: a word, and none of those that mean something else.
bool is_plain(std::string_view text) {
    static constexpr std::array<std::string_view, 10> others{"true", "false", "yes", "no", "on",
                                                             "off",  "null",  "y",   "n",  "nan"};
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    const auto may_follow = [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    };
    if (text.empty() || !is_letter(text.front())) return false;
    std::string lower(text);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return std::all_of(text.begin(), text.end(), may_follow) &&
           std::find(others.begin(), others.end(), lower) == others.end() && lower != "inf";
}

/// The writer of one of both languages.
struct Layout {
    bool json = false;

    std::string word(const std::string& text) const {
        return !json && is_plain(text) ? text : in_quotes(text);
    }
    std::string scalar(const YamlNode& node) const {
        if (node.quoted) return word(node.text);
        const char last = node.text.empty() ? ' ' : node.text.back();
        const bool finite = last != 'n' && last != 'f';  // nan, inf
        return json && !finite ? "null" : node.text;
    }
    /// The node in one line.
    std::string line(const YamlNode& node) const {
        if (node.kind == Kind::null) return "null";
        if (node.kind == Kind::scalar) return scalar(node);
        const bool list = node.kind == Kind::list;
        std::string text(list ? "[" : "{");
        for (const YamlNode& child : node.children) {
            if (&child != &node.children.front()) text += ", ";
            if (!list) text += word(child.key) + ": ";
            text += line(child);
        }
        return text + (list ? ']' : '}');
    }
};

bool is_leaf(const YamlNode& node) {
    return node.kind == Kind::scalar || node.kind == Kind::null || node.children.empty();
}

/// Plain values in brackets, in as many lines as they need.
std::string wrapped_list(const YamlNode& node, std::size_t indent, std::size_t used,
                         const Layout& layout) {
    std::string text = "[";
    std::size_t begin = 0;
    for (const YamlNode& child : node.children) {
        const std::string word = layout.line(child);
        const bool first = &child == &node.children.front();
        if (!first) text += ", ";
        if (!first && used + text.size() - begin + word.size() + indented > widest) {
            text.back() = '\n';
            begin = text.size();
            used = 0;
            text += std::string(indent, ' ');
        }
        text += word;
    }
    return text + "]";
}

void put_block(std::string& out, const YamlNode& node, std::size_t indent, const Layout& layout);

/// What stands behind a key or a dash, with the line's end.
void put_value(std::string& out, const YamlNode& node, std::size_t indent, std::size_t used,
               const Layout& layout) {
    const std::string line = layout.line(node);
    const bool plain_list =
        node.kind == Kind::list && std::all_of(node.children.begin(), node.children.end(), is_leaf);
    if (is_leaf(node) || used + line.size() + 1 <= widest) {
        out += " " + line + "\n";
    } else if (plain_list) {
        out += " " + wrapped_list(node, indent + indented, used, layout) + "\n";
    } else {
        out += "\n";
        put_block(out, node, indent + indented, layout);
    }
}

void put_block(std::string& out, const YamlNode& node, std::size_t indent, const Layout& layout) {
    const std::string blanks(indent, ' ');
    for (const YamlNode& child : node.children) {
        if (node.kind == Kind::map) {
            const std::string key = layout.word(child.key) + ":";
            out += blanks + key;
            put_value(out, child, indent, indent + key.size(), layout);
        } else {
            const std::string line = layout.line(child);
            const bool fits = is_leaf(child) || indent + line.size() + indented <= widest;
            std::string block;
            if (!fits) put_block(block, child, indent + indented, layout);
            out += blanks + "- " + (fits ? line + "\n" : block.substr(indent + indented));
        }
    }
}

void put_json(std::string& out, const YamlNode& node, std::size_t indent, const Layout& layout) {
    const bool plain =
        is_leaf(node) || (node.kind == Kind::list &&
                          std::all_of(node.children.begin(), node.children.end(), is_leaf));
    if (plain) {
        out += layout.line(node);
        return;
    }
    const bool list = node.kind == Kind::list;
    const std::string blanks(indent + indented, ' ');
    out += list ? "[\n" : "{\n";
    for (const YamlNode& child : node.children) {
        out += blanks + (list ? "" : in_quotes(child.key) + ": ");
        put_json(out, child, indent + indented, layout);
        out += &child == &node.children.back() ? "\n" : ",\n";
    }
    out += std::string(indent, ' ') + (list ? "]" : "}");
}

}  // namespace

void refuse_text(const YamlNode& node, const TextPath& path, std::string_view what) {
    const std::string keys = path_text(path);
    refuse(node.place.text, root_form(path), cat(keys, keys.empty() ? "" : " ", what));
}

void TextWriter::scalar(YamlNode& node, std::string text, bool quoted) {
    node.kind = Kind::scalar;
    node.text = std::move(text);
    node.quoted = quoted;
}

const YamlNode* TextReader::find(std::string_view key) {
    const auto& children = expect(node_, path_, Kind::map).children;
    for (std::size_t i = 0; i < children.size(); ++i) {
        const std::size_t at = (next_ + i) % children.size();
        if (children[at].key != key) continue;
        known_[at] = true;
        next_ = at + 1;
        return &children[at];
    }
    return nullptr;
}

void TextReader::format(const char* name) {
    std::string found;
    if (find("format") != nullptr) (*this)("format", found);
    check_format(node_.place.text, found, {name}, std::string(root_form(path_).hint));
}

void TextReader::expect_all_known() const {
    if (node_.kind != Kind::map) return;
    const auto other = std::find(known_.begin(), known_.end(), false) - known_.begin();
    if (other == std::ssize(known_)) return;
    const YamlNode& child = node_.children[static_cast<std::size_t>(other)];
    refuse_text(child, {&path_, child.key}, "is not known here");
}

void TextReader::missing(std::string_view key) const {
    refuse_text(node_, path_, cat("has no key '", key, "'"));
}

void TextReader::wrong_count(std::size_t wanted) const {
    refuse_text(node_, path_, cat("has ", node_.children.size(), " entries, must have ", wanted));
}

void TextReader::wrong(const YamlNode& node, const TextPath& path, std::string_view rule) {
    std::string shown = Layout{}.line(node);
    if (shown.size() > longest_shown) shown = shown.substr(0, longest_shown) + " ...";
    refuse_text(node, path, cat("is ", shown, ", must be ", rule));
}

const YamlNode& TextReader::expect(const YamlNode& node, const TextPath& path, Kind kind) {
    if (node.kind != kind) wrong(node, path, kind == Kind::map ? "a map of keys" : "a list");
    return node;
}

const std::string& TextReader::text(const YamlNode& node, const TextPath& path) {
    if (node.kind != Kind::scalar) wrong(node, path, "a single value");
    return node.text;
}

bool TextReader::flag(const YamlNode& node, const TextPath& path) {
    const bool yes = text(node, path) == "true";
    if (node.quoted || (!yes && node.text != "false")) wrong(node, path, "true or false");
    return yes;
}

YamlNode parse_document(const std::string& text, const std::string& where, const TextForm& form) {
    ProblemLog problems;
    std::optional<YamlNode> root = parse_yaml(text, {where}, problems);
    try {
        problems.throw_if_any();
    } catch (const InputError& error) {
        const Problem& first = error.problems().front();
        refuse(first.where, {form.what, form.hint.empty() ? first.hint : form.hint}, first.what);
    }
    return *std::move(root);
}

std::string yaml_text(const YamlNode& root) {
    std::string text;
    put_block(text, root, 0, {});
    return text;
}

std::string json_text(const YamlNode& root) {
    std::string text;
    put_json(text, root, 0, {.json = true});
    return text + "\n";
}

}  // namespace loratrain

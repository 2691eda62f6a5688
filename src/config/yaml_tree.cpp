#include "config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::size_t most_compared = 500000;
constexpr std::size_t most_listed = 20;
constexpr std::size_t short_list = 100;

/// "--set defaults.r" names the key already.
void remove_key_of_option(const Place& place, std::string& what) {
    if (!place.on_command_line) return;
    const std::string key = place.text.substr(place.text.find(' ') + 1) + ": ";
    if (what.starts_with(key)) what.erase(0, key.size());
}

}  // namespace

std::string hint_among(const std::string& word, const std::vector<std::string>& candidates) {
    const std::string near = nearest(word, candidates);
    if (!near.empty()) return "did you mean '" + near + "'?";
    return candidates.empty() ? "" : "one of: " + some_of(candidates, most_listed);
}

void ProblemLog::add(const Place& place, std::string what, std::string hint) {
    remove_key_of_option(place, what);
    if (!known_.emplace(place.text, what).second) return;
    entries_.push_back({place, {place.text, std::move(what), std::move(hint)}});
}

std::string ProblemLog::hint_among(const std::string& word,
                                   const std::vector<std::string>& candidates) {
    const bool long_list = candidates.size() > short_list;
    if (long_list && compared_ >= most_compared)
        return "one of: " + some_of(candidates, most_listed);
    if (long_list) compared_ += candidates.size();
    return loratrain::hint_among(word, candidates);
}

void ProblemLog::throw_if_any() const {
    if (entries_.empty()) return;
    std::vector<Entry> sorted = entries_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.place.on_command_line, a.place.line) <
               std::tie(b.place.on_command_line, b.place.line);
    });
    std::vector<Problem> problems;
    problems.reserve(sorted.size());
    for (Entry& entry : sorted) problems.push_back(std::move(entry.problem));
    throw InputError(std::move(problems));
}

namespace {

constexpr int max_depth = 32;
constexpr int max_nodes = 1000000;

/// Another document, or stray text, where the text should end.
struct MoreText {
    YAML::Mark begin;
};

int levels(const YamlNode& node) {
    int below = 0;
    for (const YamlNode& child : node.children) below = std::max(below, levels(child));
    return below + 1;
}

/// Makes the tree while the text is parsed, so that what is too large is refused early. The parser
/// is asked for one document at a time: yaml-cpp 0.7's LoadAll never ends at a stray comma.
class TreeBuilder final : public YAML::EventHandler {
  public:
    TreeBuilder(const YamlSource& source, ProblemLog& log) : source_(source), log_(log) {}

    /// The document; an empty text is null.
    YamlNode take() {
        if (documents_ == 0) root_.place = source_.place(1);
        return std::move(root_);
    }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (++documents_ > 1) throw MoreText{mark};
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        begin(YamlNode::Kind::null, mark, anchor);
        end();
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        YamlNode& node = begin(YamlNode::Kind::scalar, mark, anchor);
        node.text = value;
        if (value.find('\0') != std::string::npos) {
            log_.add(node.place, cat("a NUL character in '", value, "'"),
                     "remove it: names and paths would end there");
        }
        node.quoted = tag == "!";
        end();
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value /*style*/) override {
        begin(YamlNode::Kind::list, mark, anchor);
    }
    void OnSequenceEnd() override { end(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value /*style*/) override {
        begin(YamlNode::Kind::map, mark, anchor);
    }
    void OnMapEnd() override { end(); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchored_.find(anchor);
        if (found == anchored_.end()) {
            throw YAML::RepresentationException(mark, "an alias that contains itself");
        }
        const Anchored& known = found->second;
        count(known.nodes, mark);
        check_depth(open_.size() + static_cast<std::size_t>(levels(known.node)), mark);
        place(known.node);
    }

  private:
    struct Open {
        YamlNode node;
        YAML::Mark mark;
        YAML::anchor_t anchor = YAML::NullAnchor;
        int nodes_before = 0;
        std::optional<YamlNode> key;                              ///< of a mapping, until its value
        std::unordered_map<std::string, std::string> known_keys;  ///< and where each came first
    };
    struct Anchored {
        YamlNode node;
        int nodes = 0;
    };

    void count(int nodes, const YAML::Mark& mark) {
        if (nodes > max_nodes - nodes_) {
            throw YAML::RepresentationException(
                mark, cat("more than ", max_nodes, " values (aliases of aliases?)"));
        }
        nodes_ += nodes;
    }
    static void check_depth(std::size_t depth, const YAML::Mark& mark) {
        if (depth > max_depth) throw YAML::RepresentationException(mark, "nested too deeply");
    }

    YamlNode& begin(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
        const int before = nodes_;
        count(1, mark);
        Open& open = open_.emplace_back();
        check_depth(open_.size(), mark);
        open.node.kind = kind;
        open.node.place = source_.place(mark.line + 1);
        open.mark = mark;
        open.anchor = anchor;
        open.nodes_before = before;
        return open.node;
    }
    void end() {
        Open closed = std::move(open_.back());
        open_.pop_back();
        if (closed.anchor != YAML::NullAnchor) {
            const int nodes = nodes_ - closed.nodes_before;
            count(nodes, closed.mark);
            anchored_[closed.anchor] = {closed.node, nodes};
        }
        place(std::move(closed.node));
    }
    /// Puts a complete node where it belongs.
    void place(YamlNode node) {
        if (open_.empty()) {
            root_ = std::move(node);
        } else if (open_.back().node.kind == YamlNode::Kind::list) {
            open_.back().node.children.push_back(std::move(node));
        } else if (!open_.back().key) {
            open_.back().key = std::move(node);
        } else {
            add_entry(open_.back(), std::move(node));
        }
    }
    void add_entry(Open& map, YamlNode value) {
        const YamlNode key = *std::exchange(map.key, std::nullopt);
        if (key.kind != YamlNode::Kind::scalar) {
            log_.add(key.place, "a key must be a plain word", "write key: value");
            return;
        }
        const auto [first, added] = map.known_keys.try_emplace(key.text, key.place.text);
        if (!added) {
            log_.add(key.place, "duplicate key '" + key.text + "'",
                     "it was already given at " + first->second);
            return;
        }
        value.key = key.text;
        value.key_place = key.place;
        if (value.kind != YamlNode::Kind::scalar) value.place = value.key_place;
        map.node.children.push_back(std::move(value));
    }

    const YamlSource& source_;
    ProblemLog& log_;
    std::vector<Open> open_;
    std::unordered_map<YAML::anchor_t, Anchored> anchored_;
    YamlNode root_;
    int documents_ = 0;
    int nodes_ = 0;
};

std::string line_of(const std::string& text, int line) {
    std::istringstream lines(text);
    std::string current;
    for (int i = 0; i < line && std::getline(lines, current); ++i) {
    }
    return current;
}

std::string syntax_hint(const std::string& text, const YamlSource& source, int line) {
    if (source.on_command_line) return "check the quotes and brackets of the value";
    if (line_of(text, line).find('\t') != std::string::npos) {
        return "indent with spaces, not with tabs";
    }
    return "check quotes, brackets, colons and the indentation of this line and the one before";
}

void refuse_rest(const MoreText& rest, const std::string& text, const YamlSource& source,
                 ProblemLog& log) {
    constexpr std::size_t most_shown = 60;
    const int line = rest.begin.line + 1;
    const std::string shown = line_of(text, line).substr(0, most_shown);
    if (shown.starts_with("---")) {
        log.add(source.place(line), "a second YAML document begins",
                "keep one job per file, without further '---' lines");
    } else {
        log.add(source.place(line), "there is more after the end of the YAML: '" + shown + "'",
                "remove what does not belong there, such as a comma");
    }
}

/// The four hexadecimal digits of \\uXXXX at `at`; none where that is no such escape.
std::optional<unsigned> escaped_unit(const std::string& text, std::size_t at) {
    constexpr std::size_t digits = 4;
    if (text.compare(at, 2, "\\u") != 0 || at + 2 + digits > text.size()) return std::nullopt;
    unsigned unit = 0;
    const char* begin = text.data() + at + 2;
    const auto result = std::from_chars(begin, begin + digits, unit, 16);
    if (result.ec != std::errc{} || result.ptr != begin + digits) return std::nullopt;
    return unit;
}

/// JSON writes characters beyond U+FFFF as two escapes, a surrogate pair; YAML as one, \\UXXXXXXXX.
/// The text with those of the double-quoted scalar around offset `at` in YAML's way, from there to
/// its end; none where there is no pair.
std::optional<std::string> with_whole_characters(const std::string& text, std::size_t at) {
    std::string scalar;
    bool any = false;
    std::size_t i = at;
    while (i < text.size() && text[i] != '"') {
        const auto high = escaped_unit(text, i);
        const auto low = high ? escaped_unit(text, i + 6) : std::nullopt;
        if (low && *high >= 0xd800 && *high < 0xdc00 && *low >= 0xdc00 && *low < 0xe000) {
            const unsigned code = 0x10000U + ((*high - 0xd800U) << 10U) + (*low - 0xdc00U);
            std::ostringstream escape;
            escape << "\\U" << std::setw(8) << std::setfill('0') << std::hex << code;
            scalar += escape.str();
            i += 12;
            any = true;
            continue;
        }
        const std::size_t taken = text[i] == '\\' ? 2 : 1;
        scalar += text.substr(i, taken);
        i += taken;
    }
    if (!any) return std::nullopt;
    return text.substr(0, at) + scalar + text.substr(std::min(i, text.size()));
}

/// Where the escape begins that yaml-cpp has refused, at a mark behind it; the end of the text
/// where it is something else that it refuses.
std::size_t refused_escape(const std::string& text, const YAML::Exception& error) {
    if (!error.msg.starts_with(YAML::ErrorMsg::INVALID_UNICODE)) return text.size();
    const auto end = std::min(static_cast<std::size_t>(std::max(error.mark.pos, 0)), text.size());
    return end == 0 ? text.size() : std::min(text.rfind("\\u", end - 1), text.size());
}

void refuse_syntax(const YAML::Exception& error, const std::string& text, const YamlSource& source,
                   ProblemLog& log) {
    const int line = error.mark.line + 1;
    const bool half = refused_escape(text, error) < text.size();
    log.add(source.place(line),
            half ? "not valid YAML: an escape \\uD800 to \\uDFFF that is half of a character"
                 : "not valid YAML: " + error.msg,
            half ? "write the character itself, or both halves, as in \\ud83d\\ude00"
                 : syntax_hint(text, source, line));
}

}  // namespace

Place YamlSource::place(int line) const {
    if (on_command_line) return {name, 0, true};
    return {name + ":" + std::to_string(line), line, false};
}

const YamlNode* YamlNode::find(const std::string& name) const {
    if (kind != Kind::map) return nullptr;
    for (const YamlNode& child : children) {
        if (child.key == name) return &child;
    }
    return nullptr;
}

YamlNode* YamlNode::find(const std::string& name) {
    return const_cast<YamlNode*>(std::as_const(*this).find(name));
}

std::optional<YamlNode> parse_yaml(const std::string& text, const YamlSource& source,
                                   ProblemLog& log) {
    if (text.size() > max_yaml_bytes) {
        log.add(source.place(1), human_bytes(text.size()) + " are too much for a job",
                cat("give at most ", human_bytes(max_yaml_bytes)));
        return std::nullopt;
    }
    for (std::string known = text;;) {
        TreeBuilder builder(source, log);
        try {
            std::istringstream stream(known);
            YAML::Parser parser(stream);
            while (parser.HandleNextDocument(builder)) {
            }
            return builder.take();
        } catch (const MoreText& rest) {
            refuse_rest(rest, known, source, log);
            return builder.take();
        } catch (const YAML::Exception& error) {
            const std::size_t escape = refused_escape(known, error);
            if (auto whole = with_whole_characters(known, escape)) {
                known = std::move(*whole);
                continue;
            }
            refuse_syntax(error, known, source, log);
            return std::nullopt;
        }
    }
}

}  // namespace loratrain

#include "config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace loratrain {

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
    std::istringstream stream(text);
    TreeBuilder builder(source, log);
    try {
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
        return builder.take();
    } catch (const MoreText& rest) {
        refuse_rest(rest, text, source, log);
        return builder.take();
    } catch (const YAML::Exception& error) {
        const int line = error.mark.line + 1;
        log.add(source.place(line), "not valid YAML: " + error.msg,
                syntax_hint(text, source, line));
        return std::nullopt;
    }
}

}  // namespace loratrain

#include "config/yaml_tree.h"

#include <yaml-cpp/yaml.h>

#include <sstream>
#include <unordered_map>
#include <utility>

namespace loratrain {

namespace {

constexpr int max_depth = 32;
constexpr int max_nodes = 1000000;

class TreeBuilder {
  public:
    TreeBuilder(const YamlSource& source, ProblemLog& log) : source_(source), log_(log) {}

    YamlNode build(const YAML::Node& node, int depth) {
        if (depth > max_depth) {
            throw YAML::RepresentationException(
                node.Mark(), "nested too deeply (an alias that contains itself?)");
        }
        if (++nodes_ > max_nodes) {
            throw YAML::RepresentationException(
                node.Mark(), cat("more than ", max_nodes, " values (aliases of aliases?)"));
        }
        YamlNode result;
        result.place = place(node);
        if (node.IsScalar()) {
            result.kind = YamlNode::Kind::scalar;
            result.text = node.Scalar();
            result.quoted = node.Tag() == "!";
        } else if (node.IsSequence()) {
            result.kind = YamlNode::Kind::list;
            for (const auto& item : node) result.children.push_back(build(item, depth + 1));
        } else if (node.IsMap()) {
            result.kind = YamlNode::Kind::map;
            FirstPlaces known;
            for (const auto& entry : node) {
                add_entry(result, known, entry.first, entry.second, depth);
            }
        }
        return result;
    }

  private:
    using FirstPlaces = std::unordered_map<std::string, std::string>;  ///< key -> where it came

    Place place(const YAML::Node& node) const { return source_.place(node.Mark().line + 1); }

    void add_entry(YamlNode& map, FirstPlaces& known, const YAML::Node& key,
                   const YAML::Node& value, int depth) {
        if (!key.IsScalar()) {
            log_.add(place(key), "a key must be a plain word", "write key: value");
            return;
        }
        const auto [first, added] = known.try_emplace(key.Scalar(), place(key).text);
        if (!added) {
            log_.add(place(key), "duplicate key '" + key.Scalar() + "'",
                     "it was already given at " + first->second);
            return;
        }
        YamlNode child = build(value, depth + 1);
        child.key = key.Scalar();
        child.key_place = place(key);
        if (child.kind != YamlNode::Kind::scalar) child.place = child.key_place;
        map.children.push_back(std::move(child));
    }

    const YamlSource& source_;
    ProblemLog& log_;
    int nodes_ = 0;
};

std::string syntax_hint(const std::string& text, const YamlSource& source, int line) {
    if (source.on_command_line) return "check the quotes and brackets of the value";
    std::istringstream lines(text);
    std::string current;
    for (int i = 0; i < line && std::getline(lines, current); ++i) {
    }
    if (current.find('\t') != std::string::npos) return "indent with spaces, not with tabs";
    return "check quotes, brackets, colons and the indentation of this line and the one before";
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
    try {
        const std::vector<YAML::Node> documents = YAML::LoadAll(text);
        if (documents.size() > 1) {
            log.add(source.place(documents[1].Mark().line + 1), "a second YAML document begins",
                    "keep one job per file, without further '---' lines");
        }
        YamlNode empty;
        empty.place = source.place(1);
        return documents.empty() ? empty : TreeBuilder(source, log).build(documents[0], 0);
    } catch (const YAML::Exception& error) {
        const int line = error.mark.line + 1;
        log.add(source.place(line), "not valid YAML: " + error.msg,
                syntax_hint(text, source, line));
        return std::nullopt;
    }
}

}  // namespace loratrain

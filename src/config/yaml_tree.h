#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace loratrain {

/// YAML texts as plain trees, and problems of a job file with the line or option they come from.

/// Where a value was written: a line of a file, or an option of the command line.
struct Place {
    std::string text;  ///< "tune.yaml:12" or "--set run.dir"
    int line = 0;      ///< counted from 1; 0 on the command line
    bool on_command_line = false;
};

/// "did you mean 'x'?", or "one of: a, b, c" if no candidate is near.
std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);

/// Problems with their places. They are thrown in the order of lines; problems of the command line
/// come last.
class ProblemLog {
  public:
    /// Adds a problem. If the place is an option that names the key at the start of `what`, the key
    /// is dropped. An equal problem at the same place is added once, because trials of a sweep
    /// share the places of their values.
    void add(const Place& place, std::string what, std::string hint);
    /// As hint_among(). After many words were compared with long lists, only the list of
    /// candidates.
    std::string hint_among(const std::string& word, const std::vector<std::string>& candidates);
    /// Throws InputError if there is at least one problem.
    void throw_if_any() const;

  private:
    struct Entry {
        Place place;
        Problem problem;
    };
    std::vector<Entry> entries_;
    std::set<std::pair<std::string, std::string>> known_;  ///< place, what
    std::size_t compared_ = 0;                             ///< words with candidates
};

/// Where a YAML text comes from: a file, or one option of the command line.
struct YamlSource {
    std::string name;
    bool on_command_line = false;

    Place place(int line) const;
};

/// A YAML text as a plain tree; aliases are expanded, keys of a mapping are unique texts.
struct YamlNode {
    enum class Kind : std::uint8_t { null, scalar, list, map };

    Kind kind = Kind::null;
    Place place;          ///< of a scalar: its own; of a mapping's list or mapping: that of the key
    std::string key;      ///< in a mapping
    Place key_place;      ///< in a mapping
    std::string text;     ///< of a scalar
    bool quoted = false;  ///< a scalar in quotes is text, never a number
    std::vector<YamlNode> children;  ///< of a list or a mapping, in the order written

    /// The child with this key; nullptr if there is none, or the node is not a mapping.
    const YamlNode* find(const std::string& name) const;
    YamlNode* find(const std::string& name);
};

inline constexpr std::uint64_t max_yaml_bytes = std::uint64_t{16} << 20U;

/// Parses one document; an empty text is a null node. Duplicate keys are logged, and the first one
/// is kept. Text after the document is logged. A syntax error, a text of more than max_yaml_bytes,
/// a million values (with expanded aliases) or 32 levels is logged, and nothing is returned.
std::optional<YamlNode> parse_yaml(const std::string& text, const YamlSource& source,
                                   ProblemLog& log);

}  // namespace loratrain

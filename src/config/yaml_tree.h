#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/problem_log.h"

namespace loratrain {

/// YAML texts as plain trees, with the line of every value.

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

#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/yaml_reader.h"

namespace loratrain {

/// The axes of a sweep's space: keys with the values that trials take.

/// A range of a sweep's space: {min, max, scale}.
struct SweepRange {
    double min = 0.0;
    double max = 0.0;
    bool logarithm = false;
    bool whole = false;  ///< values are whole numbers
};

inline constexpr std::array<Word<bool>, 2> range_scale_words{{{"linear", false}, {"log", true}}};

/// One independent variable of a sweep: a key, or keys that vary `together`.
struct SweepAxis {
    std::string key;
    std::vector<YamlNode> choices;  ///< each a mapping of adapter keys; empty with a range
    std::optional<SweepRange> range;
    Place place;
};

/// The axes of `sweep.space`. Logs a problem and returns none if a list is empty or has a value
/// twice, a range has min >= max or cannot have a logarithm, or ranges are not allowed.
std::optional<std::vector<SweepAxis>> read_axes(const YamlNode& space, bool ranges_allowed,
                                                ProblemLog& log);

/// {key: value}: the value of the axis's range at `share` of [0, 1), with at most four digits.
YamlNode drawn_value(const SweepAxis& axis, double share);

/// The mapping of a trial; values of the form {times_r: x} are marked for resolve_multiple().
YamlNode multiples_of_map(const YamlNode& map, ProblemLog& log);

/// Replaces a value that is marked as a multiple of r; `r`: the text of r.
void resolve_multiple(YamlNode& value, const std::string& r, ProblemLog& log);

/// "r8", "lr2e-05", "qv": a key and its value in a trial's name.
std::string word_in_name(const std::string& key, const YamlNode& value);

}  // namespace loratrain

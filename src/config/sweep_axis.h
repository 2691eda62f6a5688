#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/yaml_reader.h"

namespace loratrain {

/// {min, max, scale} of a space.
struct SweepRange {
    double min = 0.0;
    double max = 0.0;
    bool logarithm = false;
    bool whole = false;  ///< values are whole numbers
};

inline constexpr std::array<Word<bool>, 2> range_scale_words{{{"linear", false}, {"log", true}}};

/// What varies on its own in a sweep: a key, or what goes `together`.
struct SweepAxis {
    std::string key;
    std::vector<YamlNode> choices;  ///< each a mapping of adapter keys; empty with a range
    std::optional<SweepRange> range;
    Place place;
};

/// The axes of `sweep.space`; none, and problems, where a list is empty or holds a value twice, a
/// range is upside down or has no logarithm, or ranges are not allowed here.
std::optional<std::vector<SweepAxis>> read_axes(const YamlNode& space, bool ranges_allowed,
                                                ProblemLog& log);

/// The mapping of the axis's key to the value of its range at `share` of [0, 1), in at most four
/// digits.
YamlNode drawn_value(const SweepAxis& axis, double share);

/// The same mapping with values of {times_r: x} marked for resolve_multiple.
YamlNode multiples_of_map(const YamlNode& map, ProblemLog& log);

/// Replaces a value that is marked as a multiple of r, given its text.
void resolve_multiple(YamlNode& value, const std::string& r, ProblemLog& log);

/// "r8", "lr2e-05", "qv": a key and its value in a trial's name.
std::string word_in_name(const std::string& key, const YamlNode& value);

}  // namespace loratrain

#include "config/sweep_axis.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "config/job_sections.h"
#include "config/key_reader.h"

namespace loratrain {

namespace {

using Kind = YamlNode::Kind;

constexpr int digits_of_draws = 4;
constexpr const char* together_key = "together";
constexpr const char* times_key = "times_r";

std::string path_of(const std::string& key) {
    return "sweep.space." + key;
}

/// {key: value}
YamlNode entry_of(const YamlNode& axis, const YamlNode& value) {
    YamlNode map;
    map.kind = Kind::map;
    map.place = axis.place;
    map.children.push_back(value);
    map.children.back().key = axis.key;
    map.children.back().key_place = axis.key_place;
    return map;
}

/// A factor becomes a null of this text until r is known: no reader takes a null with a text.
void mark_multiple(YamlNode& value) {
    value.kind = Kind::null;
}

bool is_multiple(const YamlNode& value) {
    return value.kind == Kind::null && !value.text.empty();
}

std::string text_of(const YamlNode& node) {
    if (node.children.empty()) return node.text;
    std::vector<std::string> words;
    for (const YamlNode& child : node.children) {
        words.push_back(child.key.empty() ? text_of(child) : child.key + ": " + text_of(child));
    }
    return join(words, ", ");
}

bool are_good(const YamlNode& axis, const std::vector<YamlNode>& values, ProblemLog& log) {
    if (values.empty()) {
        log.add(axis.place, path_of(axis.key) + ": is an empty list", "give at least one value");
        return false;
    }
    std::set<std::string> seen;
    for (const YamlNode& value : values) {
        if (seen.insert(text_of(value)).second) continue;
        log.add(value.place, cat(path_of(axis.key), ": ", text_of(value), " is given twice"),
                "give each value once");
    }
    return seen.size() == values.size();
}

void read_together(const YamlNode& node, SweepAxis& axis, ProblemLog& log) {
    if (!are_good(node, node.children, log)) return;
    for (const YamlNode& entry : node.children) {
        if (node.kind != Kind::list || entry.kind != Kind::map) {
            log.add(entry.place, path_of(node.key) + ": an entry is not a mapping",
                    "list mappings, as in together: [{dataset: a, max_steps: 100}]");
            return axis.choices.clear();
        }
        axis.choices.push_back(multiples_of_map(entry, log));
    }
}

void read_values(const YamlNode& node, const YamlNode& values, bool multiples, SweepAxis& axis,
                 ProblemLog& log) {
    std::vector<YamlNode> list = values.children;
    if (values.kind != Kind::list) list = {values};
    if (!are_good(node, list, log)) return;
    for (const YamlNode& value : list) {
        axis.choices.push_back(entry_of(node, value));
        if (!multiples) continue;
        YamlNode& factor = axis.choices.back().children.front();
        if (!number_in(factor.text)) {
            const std::string given = factor.text.empty() ? "" : "'" + factor.text + "' ";
            log.add(factor.place, cat(path_of(node.key), ".times_r: ", given, "is not a number"),
                    "give factors of r, as in lora_alpha: {times_r: [1, 2]}");
            factor.kind = Kind::scalar;
            factor.children.clear();
            factor.text = "1";
        }
        mark_multiple(factor);
    }
}

void read_range(const YamlNode& node, bool allowed, SweepAxis& axis, ProblemLog& log) {
    const ReadContext context{log};
    SectionReader section(&node, node.place, path_of(node.key), context, "sweep.space.KEY");
    SweepRange range;
    KeyReader reader(section);
    keys(reader, range);
    section.finish();
    const JobKey* key = find_job_key(adapter_section, node.key);
    range.whole = key != nullptr && key->whole;
    axis.range = range;
    if (!allowed) {
        section.problem(node.place, "min", "a range has no grid",
                        "give a list of values, or choose method: random");
    }
    if (!section.has("min") || !section.has("max")) return;
    if (range.min >= range.max) {
        section.problem(
            section.find("min")->place, "min",
            cat(format_exact(range.min), " is not below max, ", format_exact(range.max)),
            "give a smaller min or a larger max");
    } else if (range.logarithm && range.min <= 0.0) {
        section.problem(section.find("min")->place, "min",
                        format_exact(range.min) + " has no logarithm",
                        "give a min above 0, or scale: linear");
    }
}

SweepAxis read_axis(const YamlNode& node, bool ranges_allowed, ProblemLog& log) {
    SweepAxis axis;
    axis.key = node.key;
    axis.place = node.key_place;
    if (node.key == together_key) {
        read_together(node, axis, log);
    } else if (const JobKey* key = find_job_key(adapter_section, node.key);
               key != nullptr && !key->varies) {
        log.add(node.key_place, path_of(node.key) + ": cannot vary",
                "leave it out: trials are named after what varies, with sweep.name in front");
    } else if (node.kind != Kind::map) {
        read_values(node, node, false, axis, log);
    } else if (const YamlNode* factors = node.find(times_key);
               node.children.size() == 1 && factors != nullptr) {
        read_values(node, *factors, true, axis, log);
    } else {
        read_range(node, ranges_allowed, axis, log);
    }
    return axis;
}

/// The first letters of some modules.
std::string modules_word(const YamlNode& list) {
    std::string word;
    for (const YamlNode& module : list.children) word += module.text.substr(0, 1);
    return word;
}

}  // namespace

std::optional<std::vector<SweepAxis>> read_axes(const YamlNode& space, bool ranges_allowed,
                                                ProblemLog& log) {
    std::vector<SweepAxis> axes;
    bool usable = true;
    for (const YamlNode& node : space.children) {
        axes.push_back(read_axis(node, ranges_allowed, log));
        const SweepAxis& axis = axes.back();
        const bool good_range = axis.range && axis.range->min < axis.range->max &&
                                !(axis.range->logarithm && axis.range->min <= 0.0);
        usable = usable && (good_range ? ranges_allowed : !axis.choices.empty());
    }
    if (!usable) return std::nullopt;
    return axes;
}

YamlNode drawn_value(const SweepAxis& axis, double share) {
    const SweepRange& range = *axis.range;
    double value = 0.0;
    if (range.logarithm) {
        value = std::exp(std::log(range.min) + share * std::log(range.max / range.min));
    } else {
        value = range.min + share * (range.max - range.min + (range.whole ? 1.0 : 0.0));
    }
    if (range.whole)
        value = std::min(range.logarithm ? std::round(value) : std::floor(value), range.max);
    YamlNode map;
    map.kind = Kind::map;
    map.place = axis.place;
    YamlNode& child = map.children.emplace_back();
    child.kind = Kind::scalar;
    child.key = axis.key;
    child.place = child.key_place = axis.place;
    if (range.whole) {
        child.text = format_fixed(value, 0);
    } else {
        std::array<char, 32> text{};
        const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                       std::chars_format::general, digits_of_draws);
        child.text = format_exact(*number_in(std::string(text.data(), end.ptr)));
    }
    return map;
}

YamlNode multiples_of_map(const YamlNode& map, ProblemLog& log) {
    YamlNode result = map;
    for (YamlNode& child : result.children) {
        const YamlNode* factor = child.find(times_key);
        if (factor == nullptr) continue;
        YamlNode value = *factor;
        value.key = child.key;
        value.key_place = child.key_place;
        if (value.kind != Kind::scalar || !number_in(value.text)) {
            log.add(value.place, path_of(child.key) + ".times_r: is not a number",
                    "give one factor of r here, as in lora_alpha: {times_r: 2}");
            value.text = "1";
        }
        mark_multiple(value);
        child = std::move(value);
    }
    return result;
}

void resolve_multiple(YamlNode& value, const std::string& r, ProblemLog& log) {
    if (!is_multiple(value)) return;
    const std::optional<double> factor = number_in(value.text);
    const std::optional<double> rank = number_in(r);
    value.kind = Kind::scalar;
    if (!factor || !rank) return;
    if (value.key == "r") {
        log.add(value.key_place, "sweep.space.r: is a multiple of itself", "give numbers");
    }
    value.text = format_exact(*factor * *rank);
}

std::string word_in_name(const std::string& key, const YamlNode& value) {
    std::string text = value.kind == Kind::list ? modules_word(value) : value.text;
    if (const std::optional<double> number = number_in(text)) text = format_exact(*number);
    std::erase(text, '+');
    for (char& c : text) {
        const bool fits =
            std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
        if (!fits) c = '_';
    }
    const JobKey* known = find_job_key(adapter_section, key);
    return (known == nullptr ? key + "-" : known->in_names) + text;
}

}  // namespace loratrain

#include "config/adapter_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "config/dead_rules.h"
#include "config/key_writer.h"
#include "config/section_reader.h"
#include "config/targets_text.h"

namespace loratrain {

namespace {

using Kind = YamlNode::Kind;

/// Layers in which names are looked for while no model is known.
constexpr std::int64_t layers_compared = 256;
constexpr const char* regex_hint =
    "a regular expression must match whole names, as in .*\\.(q_proj|v_proj)";
constexpr const char* dead_rule_hint =
    "give the name of a module, or the end of one: q_proj, or layers.0.self_attn.q_proj; "
    "rank_pattern and alpha_pattern take targets of the adapter alone";
constexpr const char* not_supported_hint =
    "whole modules and norms stay frozen: use target_modules: all-linear, which is every linear of "
    "the layers, or a list of these with lm_head or embed_tokens";

/// What a list of target_modules may name.
std::vector<std::string> all_target_names() {
    std::vector<std::string> names;
    for (const Linear linear : outer_linears) names.emplace_back(module_name(linear));
    for (int i = 0; i < linear_count; ++i) {
        const char* name = module_name(static_cast<Linear>(i));
        if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    }
    return names;
}

bool is_null(const YamlNode& node) {
    return node.kind == Kind::null || (node.kind != Kind::scalar && node.children.empty());
}

/// A list of texts, or one; "" and a problem where it is neither.
std::vector<std::string> texts_of(SectionReader& section, const YamlNode& node, const char* key) {
    std::vector<YamlNode> items = node.children;
    if (node.kind == Kind::scalar) items = {node};
    std::vector<std::string> texts;
    for (const YamlNode& item : items) {
        if (item.kind == Kind::scalar && node.kind != Kind::map && !item.text.empty()) {
            texts.push_back(item.text);
            continue;
        }
        section.problem(item.place, key, "is not a list of names", "write it as [a, b]");
        return {};
    }
    return texts;
}

bool is_usable_regex(SectionReader& section, const YamlNode& node, const char* key,
                     const std::string& pattern) {
    const std::string problem = regex_problem(pattern);
    if (problem.empty()) return true;
    section.problem(node.place, key, cat("'", pattern, "' ", problem), regex_hint);
    return false;
}

/// Some layer has a linear whose name satisfies it.
template <class Holds>
bool any_module(const Holds& holds) {
    for (std::int64_t layer = 0; layer < layers_compared; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            if (holds(layer, static_cast<Linear>(i))) return true;
        }
    }
    return false;
}

bool targets_any(const AdapterJob& job) {
    return job.targets_outer() || any_module([&](std::int64_t layer, Linear linear) {
               return job.targets_linear(layer, linear);
           });
}

/// What AdapterJob holds of modules while it is read.
struct Draft {
    ModuleKeys keys;
    std::array<bool, linear_count> targets;
    std::array<bool, outer_linears.size()> outer;  ///< as outer_linears
};

/// Index in outer_linears of what a list's item means; their number: none of them.
std::size_t outer_target(const YamlNode& item) {
    const auto* found =
        std::find_if(outer_linears.begin(), outer_linears.end(), [&](Linear linear) {
            return item.kind == Kind::scalar && is_name_end(module_path(0, linear), item.text);
        });
    return static_cast<std::size_t>(found - outer_linears.begin());
}

/// "q_proj" of "layers.0.self_attn.q_proj".
std::string last_word(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
}

/// Linears of layers that a list's item names, by the end of their whole names in some layer.
std::vector<Linear> linears_meant(const YamlNode& item) {
    std::vector<Linear> meant;
    if (item.kind != Kind::scalar) return meant;
    const std::string last = last_word(item.text);
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        std::int64_t layer = last == module_name(linear) ? 0 : layers_compared;
        while (layer < layers_compared && !is_name_end(module_path(layer, linear), item.text)) {
            ++layer;
        }
        if (layer < layers_compared) meant.push_back(linear);
    }
    return meant;
}

bool read_target(SectionReader& section, const YamlNode& item, Draft& draft) {
    const std::string last = last_word(item.text);
    const std::vector<Linear> meant = linears_meant(item);
    const std::size_t outer = outer_target(item);
    const bool is_outer = outer < outer_linears.size();
    if (!is_outer && meant.empty()) {
        const auto others = other_modules();
        const bool other = std::any_of(others.begin(), others.end(),
                                       [&](const char* name) { return is_name_end(name, last); });
        section.problem(item.place, "target_modules", cat("'", item.text, "' is not a target"),
                        other && !item.text.empty() ? not_supported_hint
                                                    : hint_among(item.text, all_target_names()));
        return false;
    }
    auto& listed = draft.keys.target_modules;
    if (std::find(listed.begin(), listed.end(), item.text) != listed.end()) {
        section.problem(item.place, "target_modules", "'" + item.text + "' is given twice",
                        "name each target once");
    }
    listed.push_back(item.text);
    if (is_outer) {
        draft.outer[outer] = true;
        return false;
    }
    for (const Linear linear : meant) draft.targets[static_cast<std::size_t>(linear)] = true;
    return last != item.text;
}

void read_target_list(SectionReader& section, const YamlNode& node, Draft& draft) {
    draft.targets.fill(false);
    draft.outer.fill(false);
    bool any_path = false;
    for (const YamlNode& item : node.children) {
        any_path = read_target(section, item, draft) || any_path;
    }
    if (!any_path) draft.keys.target_modules.clear();
}

void read_target_regex(SectionReader& section, const YamlNode& node, Draft& draft) {
    const std::string hint =
        cat("write all-linear, or some of [", join(all_target_names(), ", "), "]; ", regex_hint);
    if (node.text.empty()) {
        section.problem(node.place, "target_modules",
                        "'' is neither all-linear nor a list of targets", hint);
        return;
    }
    if (!is_usable_regex(section, node, "target_modules", node.text)) return;
    AdapterJob alone;
    ModuleKeys keys;
    keys.target_regex = node.text;
    alone.modules = std::make_shared<const ModuleTable>(keys, alone.targets);
    const bool any_outer = std::any_of(
        outer_linears.begin(), outer_linears.end(),
        [&](Linear linear) { return alone.modules->regex_targets(module_path(0, linear)); });
    if (!targets_any(alone) && !any_outer) {
        section.problem(node.place, "target_modules",
                        cat("'", node.text,
                            "' is neither all-linear nor a list, and as a regular expression it "
                            "matches no module"),
                        hint);
        return;
    }
    draft.keys.target_regex = node.text;
}

void read_targets(SectionReader& section, Draft& draft) {
    const YamlNode* node = section.find("target_modules");
    if (node == nullptr) return;
    draft.keys.target_modules.clear();
    draft.keys.target_regex.clear();
    draft.targets.fill(true);
    draft.outer.fill(false);
    if (node->kind == Kind::scalar && node->text == all_linear_word) return;
    if (node->kind == Kind::scalar) return read_target_regex(section, *node, draft);
    if (node->kind == Kind::list && !node->children.empty()) {
        return read_target_list(section, *node, draft);
    }
    section.problem(node->place, "target_modules", "is neither all-linear nor a list of targets",
                    cat("write all-linear, or some of [", join(all_target_names(), ", "), "]"));
}

void read_excluded(SectionReader& section, Draft& draft) {
    const YamlNode* node = section.find("exclude_modules");
    if (node == nullptr) return;
    draft.keys.exclude_modules.clear();
    draft.keys.exclude_regex.clear();
    if (is_null(*node)) return;
    if (node->kind != Kind::scalar) {
        draft.keys.exclude_modules = texts_of(section, *node, "exclude_modules");
    } else if (is_usable_regex(section, *node, "exclude_modules", node->text)) {
        draft.keys.exclude_regex = node->text;
    }
}

std::optional<std::int64_t> layer_in(const YamlNode& node) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool number = node.kind == Kind::scalar && !node.text.empty() && node.text.size() < 7 &&
                        std::all_of(node.text.begin(), node.text.end(), digit);
    if (!number) return std::nullopt;
    return std::stoll(node.text);
}

void read_layers(SectionReader& section, Draft& draft) {
    if (const YamlNode* node = section.find("layers_to_transform")) {
        draft.keys.layers_to_transform.clear();
        if (node->kind == Kind::map) {
            section.problem(node->place, "layers_to_transform", "is a mapping",
                            "give numbers from 0 on, as in [0, 1, 2]");
            return;
        }
        std::vector<YamlNode> items = node->children;
        if (node->kind == Kind::scalar) items = {*node};
        for (const YamlNode& item : items) {
            const auto layer = layer_in(item);
            if (layer) {
                draft.keys.layers_to_transform.push_back(*layer);
                continue;
            }
            section.problem(item.place, "layers_to_transform",
                            cat("'", item.text, "' is not the number of a layer"),
                            "give numbers from 0 on, as in [0, 1, 2]");
        }
    }
    if (const YamlNode* node = section.find("layers_pattern")) {
        draft.keys.layers_pattern.clear();
        if (is_null(*node)) return;
        for (const std::string& text : texts_of(section, *node, "layers_pattern")) {
            if (text.find('|') != std::string::npos) {
                section.problem(node->place, "layers_pattern", cat("'", text, "' has a |"),
                                "write a list: [layers, h]");
            } else if (is_usable_regex(section, *node, "layers_pattern", text)) {
                draft.keys.layers_pattern.push_back(text);
            }
        }
    }
}

/// {pattern: number}
template <class T, class Read>
void read_patterns(SectionReader& section, const char* key,
                   std::vector<std::pair<std::string, T>>& patterns, const Read& read) {
    const YamlNode* node = section.find(key);
    if (node == nullptr) return;
    patterns.clear();
    if (is_null(*node)) return;
    if (node->kind != Kind::map) {
        section.problem(node->place, key, "must be a mapping",
                        cat("name modules and their values, as in ", key, ": {q_proj: 8}"));
        return;
    }
    for (const YamlNode& child : node->children) {
        if (!is_usable_regex(section, child, key, child.key)) continue;
        if (const std::optional<T> value = read(child)) patterns.emplace_back(child.key, *value);
    }
}

void read_all_patterns(SectionReader& section, Draft& draft) {
    read_patterns(section, "rank_pattern", draft.keys.rank_pattern,
                  [&](const YamlNode& node) -> std::optional<int> {
                      const auto rank = layer_in(node);
                      if (rank && *rank >= 1) return static_cast<int>(*rank);
                      section.problem(node.place, "rank_pattern",
                                      cat("'", node.text, "' is not a rank"),
                                      "give a whole number, at least 1");
                      return std::nullopt;
                  });
    read_patterns(section, "alpha_pattern", draft.keys.alpha_pattern,
                  [&](const YamlNode& node) -> std::optional<double> {
                      const std::optional<double> alpha = number_in(node.text);
                      if (alpha && *alpha > 0.0 && std::isfinite(*alpha)) return alpha;
                      section.problem(node.place, "alpha_pattern",
                                      cat("'", node.text, "' is not an alpha"),
                                      "give a number, greater than 0");
                      return std::nullopt;
                  });
}

/// exclude_modules may take them off again.
void settle_outer(const Draft& draft, AdapterJob& job) {
    for (std::size_t i = 0; i < outer_linears.size(); ++i) {
        const std::string name = module_path(0, outer_linears[i]);
        const bool by_regex = !draft.keys.target_regex.empty();
        const bool wanted = by_regex ? job.modules->regex_targets(name) : draft.outer[i];
        const bool excluded = job.modules && job.modules->is_excluded(name);
        job.targets_outer(outer_linears[i]) = wanted && !excluded;
    }
}

/// What matches nothing, of any model.
void check_dead_rules(SectionReader& section, const AdapterJob& job) {
    const std::vector<std::int64_t>& listed = job.modules->keys().layers_to_transform;
    std::int64_t layers = layers_compared;  // whether the model has them, its plan tells
    for (const std::int64_t layer : listed) layers = std::max(layers, layer + 1);
    std::vector<Linear> linears;
    for (int i = 0; i < linear_count; ++i) linears.push_back(static_cast<Linear>(i));
    for (const DeadRule& rule : dead_rules(job, layers, linears)) {
        section.problem(section.place_of(rule.key), rule.key, rule.what, dead_rule_hint);
    }
}

void read_modules(SectionReader& section, AdapterJob& job) {
    Draft draft{job.modules ? job.modules->keys() : ModuleKeys{}, job.targets, {}};
    for (std::size_t i = 0; i < outer_linears.size(); ++i) {
        draft.outer[i] = job.targets_linear(outer_linears[i]);
    }
    read_targets(section, draft);
    read_excluded(section, draft);
    read_layers(section, draft);
    read_all_patterns(section, draft);
    const bool same =
        job.modules && job.modules->keys() == draft.keys && job.targets == draft.targets;
    job.targets = draft.targets;
    if (!same) {
        job.modules = draft.keys == ModuleKeys{}
                          ? nullptr
                          : std::make_shared<const ModuleTable>(draft.keys, job.targets);
    }
    settle_outer(draft, job);
}

/// {pattern: value}
template <class T>
void write_patterns(KeyWriter& out, const char* key,
                    const std::vector<std::pair<std::string, T>>& patterns) {
    if (patterns.empty()) return;
    out.put_map(key, true, [&] {
        for (const auto& [pattern, value] : patterns) out.put(pattern, value_text(value));
    });
}

void write_modules(KeyWriter& out, const AdapterJob& job) {
    const ModuleKeys keys = job.modules ? job.modules->keys() : ModuleKeys{};
    const std::vector<std::string> targets = listed_targets(job);
    if (targets.empty()) out.put("target_modules", targets_text(job));
    if (!targets.empty()) out.put_list("target_modules", targets);
    if (!keys.exclude_regex.empty()) out.put("exclude_modules", keys.exclude_regex);
    if (!keys.exclude_modules.empty()) out.put_list("exclude_modules", keys.exclude_modules);
    std::vector<std::string> layers;
    for (const std::int64_t layer : keys.layers_to_transform) layers.push_back(value_text(layer));
    if (!layers.empty()) out.put_list("layers_to_transform", layers);
    if (!keys.layers_pattern.empty()) out.put_list("layers_pattern", keys.layers_pattern);
    write_patterns(out, "rank_pattern", keys.rank_pattern);
    write_patterns(out, "alpha_pattern", keys.alpha_pattern);
}

}  // namespace

const OwnKey<AdapterJob> modules_key{read_modules, write_modules};

void check_modules(SectionReader& section, const AdapterJob& job) {
    if (!job.modules) return;
    const ModuleKeys& keys = job.modules->keys();
    if (!keys.target_regex.empty() && !keys.layers_to_transform.empty()) {
        section.problem(section.place_of("layers_to_transform"), "layers_to_transform",
                        "goes with a list of target_modules, not with a regular expression",
                        "write the layers into the expression, as in "
                        "model\\.layers\\.(0|1)\\..*_proj");
    }
    if (!keys.layers_pattern.empty() && keys.layers_to_transform.empty()) {
        section.problem(section.place_of("layers_pattern"), "layers_pattern",
                        "is given without layers_to_transform", "give both, or neither");
    }
    for (const char* other : other_modules()) {
        if (!job.modules->regex_targets(other)) continue;
        section.problem(section.place_of("target_modules"), "target_modules",
                        cat("'", keys.target_regex, "' matches ", other, " too"),
                        not_supported_hint);
        return;
    }
    if (targets_any(job)) return check_dead_rules(section, job);
    section.problem(
        section.place_of("target_modules"), "target_modules",
        "selects no linear layer of the model",
        "change exclude_modules, layers_to_transform or layers_pattern: they leave nothing");
}

}  // namespace loratrain

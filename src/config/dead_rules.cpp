#include "config/dead_rules.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <utility>

#include "base/text.h"
#include "config/name_regex.h"

namespace loratrain {

namespace {

constexpr const char* modules_around[] = {"model",
                                          "model.layers",
                                          "model.layers.0",
                                          "model.layers.0.self_attn",
                                          "model.layers.0.self_attn.q_norm",
                                          "model.layers.0.self_attn.k_norm",
                                          "model.layers.0.mlp",
                                          "model.layers.0.mlp.act_fn",
                                          "model.layers.0.input_layernorm",
                                          "model.layers.0.post_attention_layernorm",
                                          "model.norm",
                                          "model.rotary_emb"};

/// Looks for what an adapter's rules may match.
class RuleSearch {
  public:
    RuleSearch(const AdapterJob& adapter, std::int64_t layers, const std::vector<Linear>& linears)
        : adapter_(adapter) {
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            for (const Linear linear : linears) places_.emplace_back(layer, linear);
        }
    }

    /// Names or ends of names of which no module has one.
    void look_for_names(const char* key, const std::vector<std::string>& ends) {
        for (const std::string& end : ends) {
            if (!any_module([&](const std::string& name) { return is_name_end(name, end); })) {
                dead_.push_back({key, cat("'", end, "' matches no module")});
            }
        }
    }

    void look_for_regex(const char* key, const std::string& pattern) {
        const std::regex regex = name_regex(pattern);
        if (any_module([&](const std::string& name) { return std::regex_match(name, regex); })) {
            return;
        }
        dead_.push_back({key, cat("'", pattern, "' matches no module")});
    }

    template <class T>
    void look_for_targets(const char* key, const std::vector<std::pair<std::string, T>>& patterns) {
        for (const auto& [pattern, value] : patterns) {
            if (matches_target(name_end_regex(pattern))) continue;
            dead_.push_back({key, cat("'", pattern, "' matches no target")});
        }
    }

    template <class T>
    void look_for_shadowed(const char* key,
                           const std::vector<std::pair<std::string, T>>& patterns) {
        std::vector<std::regex> regexes;
        regexes.reserve(patterns.size());
        for (const auto& [pattern, value] : patterns) regexes.push_back(name_end_regex(pattern));
        std::vector<bool> counts(patterns.size(), false);
        any_target([&](const std::string& name) {
            const auto first = std::find_if(
                regexes.begin(), regexes.end(),
                [&](const std::regex& regex) { return std::regex_match(name, regex); });
            if (first != regexes.end()) {
                counts[static_cast<std::size_t>(first - regexes.begin())] = true;
            }
            return std::find(counts.begin(), counts.end(), false) == counts.end();
        });
        for (std::size_t i = 0; i < patterns.size(); ++i) {
            if (counts[i] || !matches_target(regexes[i])) continue;
            dead_.push_back({key, cat("'", patterns[i].first,
                                      "' comes after patterns that match all its targets")});
        }
    }

    void look_for_layers(std::int64_t layers, const ModuleKeys& keys) {
        for (const std::int64_t layer : keys.layers_to_transform) {
            if (layer >= 0 && layer < layers) continue;
            dead_.push_back({"layers_to_transform", cat("there is no layer ", layer)});
        }
        for (const std::string& list : keys.layers_pattern) {
            if (std::regex_match(layer_list, name_end_regex(list))) continue;
            dead_.push_back({"layers_pattern", cat("'", list, "' matches no module")});
        }
    }

    std::vector<DeadRule> take() { return std::move(dead_); }

  private:
    template <class Fits>
    bool any_module(const Fits& fits) const {
        return std::any_of(places_.begin(), places_.end(),
                           [&](const auto& place) {
                               return fits(module_path(place.first, place.second));
                           }) ||
               std::any_of(std::begin(modules_around), std::end(modules_around), fits) ||
               std::any_of(outer_linears.begin(), outer_linears.end(),
                           [&](Linear linear) { return fits(module_path(0, linear)); });
    }

    template <class Fits>
    bool any_target(const Fits& fits) const {
        return std::any_of(outer_linears.begin(), outer_linears.end(),
                           [&](Linear linear) {
                               return adapter_.targets_linear(linear) &&
                                      fits(module_path(0, linear));
                           }) ||
               std::any_of(places_.begin(), places_.end(), [&](const auto& place) {
                   return adapter_.targets_linear(place.first, place.second) &&
                          fits(module_path(place.first, place.second));
               });
    }

    bool matches_target(const std::regex& regex) const {
        return any_target([&](const std::string& name) { return std::regex_match(name, regex); });
    }

    const AdapterJob& adapter_;
    std::vector<std::pair<std::int64_t, Linear>> places_;
    std::vector<DeadRule> dead_;
};

}  // namespace

std::vector<DeadRule> dead_rules(const AdapterJob& adapter, std::int64_t layers,
                                 const std::vector<Linear>& linears) {
    if (!adapter.modules) return {};
    const ModuleKeys& keys = adapter.modules->keys();
    RuleSearch search(adapter, layers, linears);
    search.look_for_names("target_modules", keys.target_modules);
    search.look_for_names("exclude_modules", keys.exclude_modules);
    if (!keys.exclude_regex.empty()) search.look_for_regex("exclude_modules", keys.exclude_regex);
    search.look_for_layers(layers, keys);
    search.look_for_targets("rank_pattern", keys.rank_pattern);
    search.look_for_targets("alpha_pattern", keys.alpha_pattern);
    return search.take();
}

std::vector<DeadRule> dead_rules(const AdapterJob& adapter, const ModelSpec& model) {
    if (targets_mlps_of_experts(adapter, model)) return {};
    const bool lists_targets = adapter.modules && !adapter.modules->keys().target_modules.empty();
    std::vector<Linear> linears;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const bool in_named_experts = lists_targets && is_in_experts(model, linear);
        if (has_linear(model, linear) || in_named_experts) linears.push_back(linear);
    }
    return dead_rules(adapter, model.layers, linears);
}

std::vector<DeadRule> shadowed_rules(const AdapterJob& adapter, const ModelSpec& model) {
    if (!adapter.modules || targets_mlps_of_experts(adapter, model)) return {};
    const ModuleKeys& keys = adapter.modules->keys();
    if (keys.rank_pattern.size() < 2 && keys.alpha_pattern.size() < 2) return {};
    std::vector<Linear> linears;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (has_linear(model, linear)) linears.push_back(linear);
    }
    RuleSearch search(adapter, model.layers, linears);
    search.look_for_shadowed("rank_pattern", keys.rank_pattern);
    search.look_for_shadowed("alpha_pattern", keys.alpha_pattern);
    return search.take();
}

std::span<const char* const> other_modules() {
    return modules_around;
}

}  // namespace loratrain

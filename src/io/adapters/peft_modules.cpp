#include "io/adapters/peft_modules.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace loratrain {

namespace {

/// Layers alike in so many are taken to be alike in all of any model.
constexpr std::int64_t layers_compared = 256;

using Targets = std::array<bool, linear_count>;

Targets targets_in(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer) {
    Targets targets{};
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        targets[static_cast<std::size_t>(i)] = target_rank(adapter, model, layer, linear) > 0;
    }
    return targets;
}

std::set<std::string> names_of(const Targets& targets) {
    std::set<std::string> names;
    for (int i = 0; i < linear_count; ++i) {
        if (targets[static_cast<std::size_t>(i)]) names.insert(module_name(static_cast<Linear>(i)));
    }
    return names;
}

bool alike_in_all_layers(const AdapterJob& adapter, const ModelSpec& model) {
    const Targets first = targets_in(adapter, model, 0);
    for (std::int64_t layer = 1; adapter.modules && layer < layers_compared; ++layer) {
        if (targets_in(adapter, model, layer) != first) return false;
    }
    return true;
}

std::set<std::string> with_outer(const AdapterJob& adapter, std::set<std::string> names) {
    for (const Linear linear : outer_linears) {
        if (adapter.targets_linear(linear)) names.insert(module_name(linear));
    }
    return names;
}

void choose_targets(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                    PeftModules& result) {
    if (alike_in_all_layers(adapter, model)) {
        result.target_modules = with_outer(adapter, names_of(targets_in(adapter, model, 0)));
        return;
    }
    std::set<Targets> kinds;
    std::vector<std::int64_t> with_targets;
    std::set<std::string> paths;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const Targets targets = targets_in(adapter, model, layer);
        if (targets == Targets{}) continue;
        kinds.insert(targets);
        with_targets.push_back(layer);
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (targets[static_cast<std::size_t>(i)]) paths.insert(module_path(layer, linear));
        }
    }
    if (kinds.size() == 1 && !adapter.targets_outer()) {
        result.target_modules = names_of(*kinds.begin());
        result.layers_to_transform = with_targets;
    } else {
        result.target_modules = with_outer(adapter, paths);
    }
}

/// {"q_proj": 8} where all layers have it, else by whole names; what has `usual` is left out.
template <class ValueOf, class Usual, class Write>
Json pattern_of(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                const ValueOf& value_of, Usual usual, const Write& write) {
    Json pattern = Json::object();
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!has_linear(model, linear)) continue;
        std::set<Usual> values;
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            if (adapter.targets_linear(layer, linear)) values.insert(value_of(layer, linear));
        }
        if (values.size() == 1) {
            if (*values.begin() != usual) pattern[module_name(linear)] = write(*values.begin());
            continue;
        }
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            if (!adapter.targets_linear(layer, linear)) continue;
            const Usual value = value_of(layer, linear);
            if (value != usual) pattern[module_path(layer, linear)] = write(value);
        }
    }
    for (const Linear linear : outer_linears) {
        if (!adapter.targets_linear(linear)) continue;
        const Usual value = value_of(layers, linear);
        if (value != usual) pattern[module_name(linear)] = write(value);
    }
    return pattern;
}

bool read_names(const Json& value, std::vector<std::string>& names, std::string& regex) {
    if (value.is_string()) {
        regex = value.get<std::string>();
        return regex_problem(regex).empty();
    }
    if (value.is_null()) return true;
    const bool texts =
        value.is_array() &&
        std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
    if (texts) names = value.get<std::vector<std::string>>();
    return texts;
}

bool read_layers(const Json& value, std::vector<std::int64_t>& layers) {
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& layer : list) {
        if (layer.is_null()) continue;
        if (!layer.is_number_integer()) return false;
        layers.push_back(layer.get<std::int64_t>());
    }
    return true;
}

template <class T>
bool read_pattern(const Json& value, std::vector<std::pair<std::string, T>>& pattern) {
    if (value.is_null()) return true;
    if (!value.is_object()) return false;
    for (const auto& [key, number] : value.items()) {
        const bool fits = std::is_integral_v<T> ? number.is_number_integer() : number.is_number();
        if (!fits || !regex_problem(key).empty()) return false;
        const T of_modules = number.template get<T>();
        if (!(of_modules > 0)) return false;
        pattern.emplace_back(key, of_modules);
    }
    return true;
}

}  // namespace

Json whole_or_real(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e9) return std::llround(value);
    return value;
}

PeftModules peft_modules(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers) {
    PeftModules result{{}, nullptr, Json::object(), Json::object()};
    choose_targets(adapter, model, layers, result);
    if (!adapter.modules) return result;
    result.rank_pattern = pattern_of(
        adapter, model, layers,
        [&](std::int64_t layer, Linear linear) { return adapter.rank(layer, linear); }, adapter.r,
        [](int rank) { return Json(rank); });
    result.alpha_pattern = pattern_of(
        adapter, model, layers,
        [&](std::int64_t layer, Linear linear) {
            return adapter.choice(layer, linear).lora_alpha.value_or(adapter.lora_alpha);
        },
        adapter.lora_alpha, whole_or_real);
    return result;
}

std::optional<AdapterJob> modules_of_config(JsonReader& config) {
    AdapterJob adapter;
    ModuleKeys keys;
    std::vector<std::string> lists;
    std::string list_regex;
    const Json& r = config.get("r");
    const Json& alpha = config.get("lora_alpha");
    const bool vera = config.get("peft_type") == vera_form(0.0).peft_type;
    const auto require = [&](bool fits, const char* key) {
        if (!fits) config.wrong(key, "which cannot be read");
        return fits;
    };
    bool fits =
        require(r.is_number_integer(), "r") && (vera || require(alpha.is_number(), "lora_alpha"));
    fits = require(read_names(config.get("target_modules"), keys.target_modules, keys.target_regex),
                   "target_modules") &&
           fits;
    fits =
        require(read_names(config.get("exclude_modules"), keys.exclude_modules, keys.exclude_regex),
                "exclude_modules") &&
        fits;
    fits = require(read_layers(config.get("layers_to_transform"), keys.layers_to_transform),
                   "layers_to_transform") &&
           fits;
    fits = require(read_names(config.get("layers_pattern"), lists, list_regex), "layers_pattern") &&
           fits;
    fits = require(read_pattern(config.get("rank_pattern"), keys.rank_pattern), "rank_pattern") &&
           fits;
    fits =
        require(read_pattern(config.get("alpha_pattern"), keys.alpha_pattern), "alpha_pattern") &&
        fits;
    if (!fits) return std::nullopt;
    if (!list_regex.empty()) lists.push_back(list_regex);
    for (const std::string& list : lists) {
        if (!require(regex_problem(list).empty(), "layers_pattern")) return std::nullopt;
    }
    keys.layers_pattern = lists;
    if (keys.target_regex == "all-linear") keys.target_regex.clear();
    adapter.r = r.get<int>();
    if (vera) {
        adapter.peft_type = PeftType::vera;
    } else {
        adapter.lora_alpha = alpha.get<double>();
    }
    adapter.use_rslora = config.flag("use_rslora");
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    for (const Linear linear : outer_linears) {
        const std::string name = module_path(0, linear);
        const bool is_listed =
            std::any_of(keys.target_modules.begin(), keys.target_modules.end(),
                        [&](const std::string& end) { return is_name_end(name, end); });
        adapter.targets_outer(linear) = (is_listed && !adapter.modules->is_excluded(name)) ||
                                        adapter.modules->regex_targets(name);
    }
    return adapter;
}

}  // namespace loratrain

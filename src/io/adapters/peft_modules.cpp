#include "io/adapters/peft_modules.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

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

std::set<std::string> names_of(const Targets& targets, const ModelSpec& model) {
    std::set<std::string> names;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (targets[static_cast<std::size_t>(i)]) names.insert(target_name(model, linear));
    }
    return names;
}

/// In some layer.
Targets targets_anywhere(const AdapterJob& adapter, const ModelSpec& model) {
    Targets all{};
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const Targets targets = targets_in(adapter, model, layer);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i] || targets[i];
    }
    return all;
}

/// Layers have LoRA on those of their linears that are in `all`, whichever these are.
bool alike_in_all_layers(const AdapterJob& adapter, const ModelSpec& model, const Targets& all) {
    for (std::int64_t layer = 0; adapter.modules && layer < layers_compared; ++layer) {
        const Targets targets = targets_in(adapter, model, layer);
        for (int i = 0; i < linear_count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            if (targets[at] == all[at]) continue;
            if (target_of(model, layer, static_cast<Linear>(i)).is_there) return false;
        }
    }
    return true;
}

std::set<std::string> with_outer(const AdapterJob& adapter, std::set<std::string> names) {
    for (const Linear linear : outer_linears) {
        if (adapter.targets_linear(linear)) names.insert(module_name(linear));
    }
    return names;
}

/// In transformers 5 gate and up of experts are one tensor, with twice the rank and alpha.
void add_tensors_of_experts(const AdapterJob& adapter, bool gate_up, PeftModules& result) {
    result.target_parameters = Json::array({tensor_of_experts_down});
    if (!gate_up) return;
    result.target_parameters.push_back(tensor_of_experts_gate_up);
    result.rank_pattern[pattern_of_gate_up] = 2 * adapter.r;
    result.alpha_pattern[pattern_of_gate_up] = whole_or_real(2.0 * adapter.lora_alpha);
}

/// Of an adapter without patterns. PEFT has linears in experts by their names.
void choose_beside_experts(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                           PeftModules& result) {
    const bool converts = peft_converts_targets(model);
    std::set<std::string> names;
    std::set<std::string> weights;
    std::set<Linear> in_each;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (target_rank(adapter, model, layer, linear) == 0) continue;
            const bool in_experts = target_of(model, layer, linear).is_in_experts();
            if (in_experts) in_each.insert(linear);
            if (converts && is_beside_experts(model, linear) && !in_experts) {
                weights.insert(weight_name(layer, linear));
            } else {
                names.insert(module_name(linear));
            }
        }
    }
    result.target_modules = with_outer(adapter, names);
    if (!weights.empty()) result.target_parameters = weights;
    if (converts || in_each.empty()) return;
    add_tensors_of_experts(adapter, in_each.contains(Linear::gate), result);
}

void choose_targets(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                    PeftModules& result) {
    if (!adapter.modules && has_experts(model)) {
        return choose_beside_experts(adapter, model, layers, result);
    }
    const Targets all = targets_anywhere(adapter, model);
    if (alike_in_all_layers(adapter, model, all)) {
        result.target_modules = with_outer(adapter, names_of(all, model));
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
        result.target_modules = names_of(*kinds.begin(), model);
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
            if (target_rank(adapter, model, layer, linear) > 0)
                values.insert(value_of(layer, linear));
        }
        if (values.size() == 1) {
            if (*values.begin() != usual)
                pattern[target_name(model, linear)] = write(*values.begin());
            continue;
        }
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            if (target_rank(adapter, model, layer, linear) == 0) continue;
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

}  // namespace

Json whole_or_real(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e9) return std::llround(value);
    return value;
}

PeftModules peft_modules(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers) {
    PeftModules result{{}, nullptr, nullptr, Json::object(), Json::object()};
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

}  // namespace loratrain

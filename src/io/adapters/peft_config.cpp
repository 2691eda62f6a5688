#include "io/adapters/peft_config.h"
#include "io/json_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "io/adapters/adapter_config.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

/// What adapter_config.json says of an adapter's modules, by names alone, so that readers that take
/// no regular expressions or sort keys find the same: linears as "q_proj" where all layers are
/// alike, else whole names or layers.
struct PeftModules {
    Json target_modules;
    /// Weights of linears beside experts (is_beside_experts), or tensors of experts, by
    /// peft_converts_targets().
    Json target_parameters;
    Json layers_to_transform;
    Json rank_pattern;
    Json alpha_pattern;
};

/// PEFT and its readers expect a whole alpha to be written as an integer.
Json whole_or_real(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e9) return std::llround(value);
    return value;
}

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

/// `layers`: the first so many of the model that have all of the adapter's targets.
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

using Names = std::set<std::string>;

Names all_names(const ModelSpec& model) {
    const std::vector<std::string> names = linear_names(model);
    return {names.begin(), names.end()};
}

/// `beside`: with those of linears beside experts.
Names target_names(const AdapterJob& adapter, const ModelSpec& model, bool beside = false) {
    Names names;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const bool in_experts = is_in_experts(model, linear) && targets_experts(adapter, model);
        const bool named = beside || !is_beside_experts(model, linear);
        const bool elsewhere = has_linear(model, linear) && named;
        if (!in_experts && !elsewhere) continue;
        if (adapter.targets_linear(linear)) names.insert(target_name(model, linear));
    }
    for (const Linear linear : outer_linears) {
        if (adapter.targets_linear(linear)) names.insert(module_name(linear));
    }
    return names;
}

std::string list_text(const Names& names) {
    return cat("[", join({names.begin(), names.end()}, ", "), "]");
}

/// What changes what an adapter computes beyond its form.
void refuse_variants(const AdapterConfig& file, const AdapterForm& form, JsonReader& config) {
    for (const ConfigVariant& variant : file.variants(form)) {
        config.wrong(
            variant.key.c_str(), variant.meaning,
            variant.hint.empty() ? "only plain LoRA adapters can be continued" : variant.hint);
    }
}

void check_form(JsonReader& config, const AdapterForm& form) {
    if (config.text("peft_type") != form.peft_type) {
        config.wrong("peft_type", cat("must be \"", form.peft_type, "\""),
                     "give the adapter the same peft_type");
    }
    for (const std::string& key : form.peft_switches) {
        if (!config.flag(key.c_str())) config.add(key + " is false, the job has true");
    }
}

/// A list, or {"embed_tokens": list}.
void check_token_rows(JsonReader& config, const AdapterJob& adapter) {
    if (!has_token_rows(adapter.form)) return;
    const Json& found = config.get("trainable_token_indices");
    const Json wanted = adapter.trainable_token_indices;
    if (found == wanted || found == Json{{module_name(Linear::embedding), wanted}}) return;
    config.wrong("trainable_token_indices", "the job has " + json_text(wanted),
                 "set it to the same list for adapter '" + adapter.name + "'");
}

void check_targets(JsonReader& config, const AdapterJob& adapter, const ModelSpec& model) {
    const Json& value = config.get("target_modules");
    Names found;
    if (value == "all-linear") {
        found = all_names(model);
    } else if (is_list_of_texts(value)) {
        found = value.get<Names>();
    } else {
        // A regular expression: the names of the tensors decide.
        if (!value.is_string()) config.wrong("target_modules", "must be a list of names");
        return;
    }
    const Names wanted = target_names(adapter, model);
    if (found == wanted || found == target_names(adapter, model, true)) return;
    config.add("target_modules are " + list_text(found) + ", the job has " + list_text(wanted),
               "set target_modules of adapter '" + adapter.name + "' to those of that directory");
}

void check_scale(JsonReader& config, const AdapterJob& adapter) {
    const std::string hint = "set it to the same value for adapter '" + adapter.name + "'";
    const Json& r = config.get("r");
    if (r != adapter.r) config.wrong("r", cat("the job has ", adapter.r), hint);
    if (adapter.is_vera()) return;
    const Json& alpha = config.get("lora_alpha");
    if (!alpha.is_number() || alpha.get<double>() != adapter.lora_alpha) {
        config.wrong("lora_alpha", "the job has " + format_exact(adapter.lora_alpha), hint);
    }
}

void check_rslora(JsonReader& config, const AdapterJob& adapter) {
    if (config.flag("use_rslora") == adapter.use_rslora) return;
    config.add(cat("use_rslora is ", adapter.use_rslora ? "false" : "true", ", the job has ",
                   adapter.use_rslora ? "true" : "false"),
               "set it to the same value for adapter '" + adapter.name + "'");
}

/// VeRA's factors are made again from it.
void check_projection_key(JsonReader& config, const AdapterJob& adapter) {
    const Json& key = config.get("projection_prng_key");
    if (key == adapter.projection_prng_key) return;
    config.wrong("projection_prng_key", cat("the job has ", adapter.projection_prng_key),
                 "set it to the same value for adapter '" + adapter.name + "'");
}

/// Module by module, whatever the keys that say it.
void check_modules(const AdapterConfig& file, const AdapterJob& adapter, const ModelSpec& model,
                   JsonReader& config) {
    const std::optional<AdapterJob> found = file.modules(config.problems());
    if (!found) return;
    const auto text = [](int rank, double alpha) {
        return rank == 0 ? std::string("no LoRA")
                         : cat("rank ", rank, " and scaling ", format_exact(alpha));
    };
    const auto is_other = [&](std::int64_t layer, Linear linear) {
        const LayerLinear target = target_of(model, layer, linear);
        if (!target.is_there || target.is_in_experts()) return false;
        const int rank = found->rank(layer, linear);
        const int wanted = adapter.rank(layer, linear);
        const double scaling = rank > 0 ? found->scaling(layer, linear) : 0.0;
        const double wanted_scaling = wanted > 0 ? adapter.scaling(layer, linear) : 0.0;
        if (rank == wanted && scaling == wanted_scaling) return false;
        config.add(cat(module_path(layer, linear), " has ", text(rank, scaling), ", the job has ",
                       text(wanted, wanted_scaling)),
                   cat("set r, lora_alpha, target_modules and patterns of adapter '", adapter.name,
                       "' to those of that directory"));
        return true;
    };
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            if (is_other(layer, static_cast<Linear>(i))) return;
        }
    }
    for (const Linear linear : outer_linears) {
        if (is_other(outer_layer(model, linear), linear)) return;
    }
}

/// As PEFT lists the targets of small models: with their layers.
bool lists_paths(JsonReader& config) {
    const Json& value = config.get("target_modules");
    return is_list_of_texts(value) && std::any_of(value.begin(), value.end(), [](const Json& name) {
               return name.get<std::string>().find('.') != std::string::npos;
           });
}

bool has_module_keys(const AdapterConfig& file) {
    constexpr const char* keys[] = {"rank_pattern", "alpha_pattern", "layers_to_transform",
                                    "exclude_modules", "layers_pattern"};
    return std::any_of(std::begin(keys), std::end(keys),
                       [&](const char* key) { return file.has(key); });
}

Json keys_of_lora(const AdapterJob& adapter, const PeftModules& modules) {
    return {{"alpha_pattern", modules.alpha_pattern},
            {"init_lora_weights", true},
            {"lora_alpha", whole_or_real(adapter.lora_alpha)},
            {"lora_bias", false},
            {"lora_dropout", adapter.lora_dropout},
            {"rank_pattern", modules.rank_pattern},
            {"use_dora", false},
            {"use_rslora", adapter.use_rslora}};
}

Json keys_of_vera(const AdapterJob& adapter) {
    return {{"d_initial", adapter.d_initial},
            {"init_weights", true},
            {"projection_prng_key", adapter.projection_prng_key},
            {"save_projection", adapter.save_projection},
            {"vera_dropout", adapter.lora_dropout}};
}

}  // namespace

std::string peft_config_text(const AdapterJob& adapter, const std::string& base_model_name_or_path,
                             const ModelSpec& model, std::int64_t layers) {
    PeftModules modules = peft_modules(adapter, model, layers);
    if (has_other_names(model)) {
        for (Json* names : {&modules.target_modules, &modules.target_parameters,
                            &modules.rank_pattern, &modules.alpha_pattern}) {
            if (names->is_null()) continue;
            *names = renamed(*names, [&](const auto& name) { return name_in_files(model, name); });
        }
    }
    Json config = {{"auto_mapping", nullptr},
                   {"base_model_name_or_path",
                    base_model_name_or_path.empty() ? Json() : Json(base_model_name_or_path)},
                   {"bias", "none"},
                   {"fan_in_fan_out", false},
                   {"inference_mode", true},
                   {"layers_pattern", nullptr},
                   {"layers_to_transform", modules.layers_to_transform},
                   {"modules_to_save", nullptr},
                   {"peft_type", adapter.form.peft_type},
                   {"r", adapter.r},
                   {"revision", nullptr},
                   {"target_modules", modules.target_modules},
                   {"task_type", "CAUSAL_LM"}};
    if (!modules.target_parameters.is_null()) {
        config["target_parameters"] = modules.target_parameters;
    }
    config.update(adapter.is_vera() ? keys_of_vera(adapter) : keys_of_lora(adapter, modules));
    for (const std::string& key : adapter.form.peft_switches) config[key] = true;
    if (has_token_rows(adapter.form)) {
        config["trainable_token_indices"] = adapter.trainable_token_indices;
    }
    if (const Wrapper* wrapper = wrapper_named(model.wrapper)) {
        config["exclude_modules"] = wrapper->other_parts;
    }
    return dump_json(config, 2) + "\n";
}

void check_peft_config(const std::string& path, const AdapterJob& adapter, const ModelSpec& model,
                       CappedProblems& problems) {
    collect(problems, [&] {
        const AdapterConfig file(path, model);
        Problems found;
        JsonReader config = file.reader(found);
        check_form(config, adapter.form);
        check_rslora(config, adapter);
        check_token_rows(config, adapter);
        if (adapter.is_vera()) check_projection_key(config, adapter);
        if (adapter.modules || has_module_keys(file) || lists_paths(config)) {
            check_modules(file, adapter, model, config);
        } else {
            check_scale(config, adapter);
            check_targets(config, adapter, model);
        }
        refuse_variants(file, adapter.form, config);
        found.throw_if_any();
    });
}

}  // namespace loratrain

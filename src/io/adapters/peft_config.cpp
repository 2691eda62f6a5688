#include "io/adapters/peft_config.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/adapters/adapter_config.h"
#include "io/adapters/peft_modules.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

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
    if (const Wrapper* wrapper = wrapper_named(model.wrapper)) {
        config["exclude_modules"] = wrapper->other_parts;
    }
    return dump_json(config, 2) + "\n";
}

void check_peft_config(const std::string& path, const AdapterJob& adapter, const ModelSpec& model,
                       CappedProblems& problems) {
    try {
        const AdapterConfig file(path, model);
        Problems found;
        JsonReader config = file.reader(found);
        check_form(config, adapter.form);
        check_rslora(config, adapter);
        if (adapter.is_vera()) check_projection_key(config, adapter);
        if (adapter.modules || has_module_keys(file) || lists_paths(config)) {
            check_modules(file, adapter, model, config);
        } else {
            check_scale(config, adapter);
            check_targets(config, adapter, model);
        }
        refuse_variants(file, adapter.form, config);
        found.throw_if_any();
    } catch (const InputError& error) {
        problems.add(error);
    }
}

}  // namespace loratrain

#include "io/adapters/adapter_config.h"

#include <strings.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/dead_rules.h"
#include "io/files.h"
#include "io/tensor_names.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

enum class KeyUse : std::uint8_t {
    read,     ///< says on which modules A and B are, of what form, and how they are scaled
    idle,     ///< A and B mean the same whatever it says
    variant,  ///< set, the adapter is something else
};

struct ConfigKey {
    std::string_view name;
    KeyUse use = KeyUse::idle;
    std::string_view meaning{};
    std::array<bool, 4> loads{};  ///< as ConfigVariant has it
    bool merges = true;
    bool empty_is_set = false;  ///< {} is a variant with its defaults
};

constexpr std::array<bool, 4> nobody{};
constexpr std::array<bool, 4> peft_alone{true};
constexpr std::array<bool, 4> llama_cpp_alone{false, false, false, true};
constexpr std::array<bool, 4> peft_and_llama_cpp{true, false, false, true};
/// Those that read past the key find the adapter's other tensors.
constexpr std::array<bool, 4> all_but_vllm{true, false, true, true};
constexpr std::array<bool, 4> everybody{true, true, true, true};

/// The list: PEFT 0.21's LoraConfig and VeraConfig in their order, then keys of other programs.
constexpr ConfigKey config_keys[] = {
    {"task_type"},
    {"peft_type", KeyUse::read},
    {"auto_mapping"},
    {"peft_version"},
    {"base_model_name_or_path"},
    {"revision"},
    {"inference_mode"},
    {"r", KeyUse::read},
    {"target_modules", KeyUse::read},
    {"exclude_modules", KeyUse::read},
    {"lora_alpha", KeyUse::read},
    {"lora_dropout"},
    {"fan_in_fan_out", KeyUse::variant, "which is of transposed weights", everybody},
    {"bias", KeyUse::variant, "which trains biases of the base", all_but_vllm},
    {"use_rslora", KeyUse::read},
    {"modules_to_save", KeyUse::variant, "which puts trained copies in the place of modules",
     peft_alone},
    {"init_lora_weights", KeyUse::read},  // start_of()
    {"layers_to_transform", KeyUse::read},
    {"layers_pattern", KeyUse::read},
    {"rank_pattern", KeyUse::read},
    {"alpha_pattern", KeyUse::read},
    {"megatron_config", KeyUse::variant, "which is for linear layers of Megatron", nobody, false,
     true},
    {"megatron_core"},
    {"trainable_token_indices", KeyUse::variant, "which trains rows of the embedding", peft_alone},
    {"loftq_config"},  // this and the next three: with init_lora_weights alone
    {"eva_config"},
    {"corda_config"},
    {"lora_ga_config"},
    {"use_dora", KeyUse::variant, "which gives rows of W + scaling B A other lengths (DoRA)",
     peft_alone},
    {"velora_config", KeyUse::variant, "which changes gradients of A (VeLoRA)", everybody, true,
     true},
    {"alora_invocation_tokens", KeyUse::variant,
     "with which A and B work behind these tokens alone (aLoRA)", peft_and_llama_cpp, false},
    {"use_qalora", KeyUse::variant, "which sums groups of inputs before A (QA-LoRA)", peft_alone},
    {"qalora_group_size"},
    {"monteclora_config", KeyUse::variant, "which draws A at random (MonteCLoRA)", peft_alone, true,
     true},
    {"layer_replication", KeyUse::variant, "which repeats layers of the base", peft_alone, false},
    {"runtime_config"},
    {"lora_bias", KeyUse::variant, "which gives B a bias", peft_alone, false},
    {"target_parameters", KeyUse::variant,
     "which puts LoRA on tensors of modules, as on those of all experts", peft_alone},
    {"use_bdlora", KeyUse::variant, "with which A or B is block-diagonal (BD-LoRA)", peft_alone,
     true, true},
    {"arrow_config", KeyUse::variant, "which chooses among other adapters (Arrow)", nobody, false,
     true},
    {"kasa_config", KeyUse::variant,
     "which takes the smallest singular values off the base weights (KaSA)", peft_alone, true,
     true},
    {"ensure_weight_tying", KeyUse::variant,
     "which gives the head that is tied to the embedding the embedding's A and B", peft_alone,
     false},
    {"projection_prng_key", KeyUse::read},
    {"save_projection"},
    {"vera_dropout"},
    {"d_initial"},
    {"init_weights"},
    // Before PEFT knew aLoRA: it leaves the key out with a warning.
    {"invocation_string", KeyUse::variant, "with which A and B work behind this text alone (aLoRA)",
     llama_cpp_alone, false},
    {"lora_dtype"},  // this and the next two: ms-swift
    {"lorap_lr_ratio"},
    {"lorap_emb_lr"},
};

/// How A and B began, by init_lora_weights, where that is more than numbers in them.
struct Start {
    std::string_view name;  ///< how it begins, whatever its case
    std::string_view meaning;
    std::array<bool, 4> loads{};
    bool by_case = false;  ///< PEFT knows it in small letters alone
};
constexpr const char* changes_base = "which changes the base weights";
constexpr const char* convert_hint =
    "convert it to plain LoRA with PEFT first: "
    "save_pretrained(path_initial_model_for_weight_conversion=...)";
constexpr Start starts[] = {
    {"pissa", changes_base, peft_alone, true},
    {"olora", changes_base, peft_alone},
    {"corda", "which changes the base weights by data that the directory does not hold", nobody},
    {"loftq", "which changes the base weights, as PEFT does again where scipy is installed",
     peft_alone, true},
    {"lora_ga", "which changes the base weights by gradients that the directory does not hold",
     nobody},
};
/// What says how numbers in A and B began and nothing else.
constexpr std::string_view plain_starts[] = {"gaussian", "eva", "orthogonal", "mica"};

bool is_off(const Json& value) {
    return value.is_null() || value == false || value == "none" ||
           (value.is_structured() && value.empty());
}

bool switches_on(const AdapterForm& form, std::string_view key) {
    return std::count(form.peft_switches.begin(), form.peft_switches.end(), key) > 0;
}

std::optional<ConfigVariant> start_of(const Json& value) {
    constexpr const char* key = "init_lora_weights";
    if (value.is_null() || value.is_boolean()) return std::nullopt;
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    for (const Start& start : starts) {
        if (::strncasecmp(name.c_str(), start.name.data(), start.name.size()) != 0) continue;
        const bool known = !start.by_case || name.starts_with(start.name);
        return ConfigVariant{key, std::string(start.meaning), known ? start.loads : nobody, true,
                             convert_hint};
    }
    for (const std::string_view plain : plain_starts) {
        if (::strcasecmp(name.c_str(), plain.data()) == 0) return std::nullopt;
    }
    return ConfigVariant{key, "which PEFT 0.21 does not know", nobody, false};
}

bool read_names(const Json& value, std::vector<std::string>& names, std::string& regex) {
    if (value.is_string()) {
        regex = value.get<std::string>();
        return regex_problem(regex).empty();
    }
    if (value.is_null()) return true;
    if (is_list_of_texts(value)) names = value.get<std::vector<std::string>>();
    return is_list_of_texts(value);
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

template <class AnyJson>
bool is_rank(const AnyJson& value) {
    return value.is_number_integer() && value.template get<std::int64_t>() >= 1 &&
           value.template get<std::int64_t>() <= INT32_MAX;
}

template <class T>
bool read_pattern(const OrderedJson& document, const char* name,
                  std::vector<std::pair<std::string, T>>& pattern) {
    const auto value = document.find(name);
    if (value == document.end() || value->is_null()) return true;
    if (!value->is_object()) return false;
    for (const auto& [key, number] : value->items()) {
        const bool fits = std::is_integral_v<T> ? is_rank(number) : number.is_number();
        if (!fits || !regex_problem(key).empty()) return false;
        pattern.emplace_back(key, number.template get<T>());
    }
    return true;
}

/// Beside the layers' linears.
void read_outer_targets(const ModuleKeys& keys, AdapterJob& adapter) {
    for (const Linear linear : outer_linears) {
        const std::string name = module_path(0, linear);
        const bool is_listed =
            std::any_of(keys.target_modules.begin(), keys.target_modules.end(),
                        [&](const std::string& end) { return is_name_end(name, end); });
        adapter.targets_outer(linear) = (is_listed && !adapter.modules->is_excluded(name)) ||
                                        adapter.modules->regex_targets(name);
    }
}

}  // namespace

bool is_list_of_texts(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(),
                                           [](const Json& name) { return name.is_string(); });
}

AdapterConfig::AdapterConfig(const std::string& path, const ModelSpec& model)
    : path_(path), model_(model) {
    const std::string text = read_text(path);
    document_ = parse_json(text, path);
    if (!document_.is_object()) {
        throw InputError(path, "holds " + json_kind(document_) + ", must be an object",
                         "give a directory that PEFT or loratrain has written");
    }
    ordered_ = parse_ordered_json(text);
    if (has_other_names(model)) take_own_names();
    if (!peft_converts_targets(model)) leave_out_tensors_of_experts();
}

const Json& AdapterConfig::get(const char* key) const {
    static const Json null;
    const auto found = document_.find(key);
    return found == document_.end() ? null : *found;
}

bool AdapterConfig::has(const char* key) const {
    return !is_off(get(key));
}

void AdapterConfig::leave_out_tensors_of_experts() {
    const Json& names = get("target_parameters");
    const auto is_own = [](const Json& name) {
        return name == tensor_of_experts_gate_up || name == tensor_of_experts_down;
    };
    const bool own = names.is_array() && !names.empty() &&
                     std::all_of(names.begin(), names.end(), is_own) && has("target_modules");
    if (!own) return;
    names_tensors_of_experts_ = true;
    document_.erase("target_parameters");
    for (const char* key : {"rank_pattern", "alpha_pattern"}) {
        const auto pattern = document_.find(key);
        if (pattern == document_.end() || !pattern->is_object()) continue;
        pattern->erase(pattern_of_gate_up);
        ordered_[key].erase(pattern_of_gate_up);
    }
}

void AdapterConfig::take_own_names() {
    const auto path_of = [this](const std::string& path) {
        const std::string text = name_of_files(model_, path);
        return text.empty() ? path : text;
    };
    for (const char* key :
         {"target_modules", "target_parameters", "rank_pattern", "alpha_pattern"}) {
        const auto names = document_.find(key);
        if (names == document_.end()) continue;
        if (!names->is_object() && !is_list_of_texts(*names)) continue;
        *names = renamed(*names, path_of);
        ordered_[key] = renamed(OrderedJson(ordered_[key]), path_of);
    }
    const Wrapper* wrapper = wrapper_named(model_.wrapper);
    if (wrapper != nullptr && get("exclude_modules") == wrapper->other_parts) {
        document_.erase("exclude_modules");
    }
}

bool AdapterConfig::ties_its_head() const {
    Problems ignored;
    const std::optional<AdapterJob> adapter = modules(ignored);
    return model_.tie_word_embeddings && (!adapter || adapter->targets_outer());
}

std::vector<std::string> AdapterConfig::linears_by_weights() const {
    const Json& names = get("target_parameters");
    if (!is_list_of_texts(names)) return {};
    std::vector<std::string> linears;
    for (const auto& name : names.get<std::vector<std::string>>()) {
        const std::string path = name.substr(0, name.rfind('.'));
        const std::optional<Linear> linear = linear_of_module(path);
        const bool beside = linear && is_beside_experts(model_, *linear) &&
                            name == weight_name(layer_in_name(name), *linear);
        if (!beside) return {};
        linears.push_back(path);
    }
    return linears;
}

std::vector<ConfigVariant> AdapterConfig::variants(const AdapterForm& form) const {
    std::vector<ConfigVariant> found;
    for (const ConfigKey& key : config_keys) {
        if (key.use != KeyUse::variant) continue;
        const bool defaults = key.empty_is_set && get(key.name.data()) == Json::object();
        if (!has(key.name.data()) && !defaults) continue;
        if (switches_on(form, key.name)) continue;
        if (key.name == "trainable_token_indices" && has_token_rows(form)) continue;
        if (key.name == "ensure_weight_tying" && !ties_its_head()) continue;
        if (key.name == "target_parameters" && !linears_by_weights().empty()) continue;
        found.push_back({std::string(key.name), std::string(key.meaning), key.loads, key.merges});
    }
    if (auto start = start_of(get("init_lora_weights"))) found.push_back(*std::move(start));
    for (const auto& [name, value] : document_.items()) {
        const bool known =
            std::any_of(std::begin(config_keys), std::end(config_keys),
                        [&own = name](const ConfigKey& key) { return key.name == own; });
        if (known || is_off(value)) continue;
        found.push_back({name, "which is not a key of PEFT 0.21: what it means is not known",
                         everybody, true,
                         "take it out of the file if A and B mean the same without it", false});
    }
    return found;
}

std::string AdapterConfig::text(const ConfigVariant& variant) const {
    return cat(variant.key, " is ", json_text(get(variant.key.c_str())), ", ", variant.meaning);
}

std::optional<AdapterJob> AdapterConfig::modules(Problems& problems) const {
    JsonReader config = reader(problems);
    AdapterJob adapter;
    ModuleKeys keys;
    std::vector<std::string> lists;
    std::string list_regex;
    const bool vera = get("peft_type") == vera_form(0.0).peft_type;
    bool fits = true;
    const auto require = [&](bool read, const char* key) {
        if (!read) config.wrong(key, "which cannot be read");
        fits = fits && read;
    };
    require(is_rank(get("r")), "r");
    require(vera || get("lora_alpha").is_number(), "lora_alpha");
    require(read_names(get("target_modules"), keys.target_modules, keys.target_regex),
            "target_modules");
    require(read_names(get("exclude_modules"), keys.exclude_modules, keys.exclude_regex),
            "exclude_modules");
    require(read_layers(get("layers_to_transform"), keys.layers_to_transform),
            "layers_to_transform");
    require(read_names(get("layers_pattern"), lists, list_regex), "layers_pattern");
    require(read_pattern(ordered_, "rank_pattern", keys.rank_pattern), "rank_pattern");
    require(read_pattern(ordered_, "alpha_pattern", keys.alpha_pattern), "alpha_pattern");
    if (!list_regex.empty()) lists.push_back(list_regex);
    for (const std::string& list : lists) require(regex_problem(list).empty(), "layers_pattern");
    const Json& targets = get("target_modules");
    const bool on_tensors = has("target_parameters");
    if ((targets.is_null() || targets == "") && !on_tensors) {
        config.wrong("target_modules", "must name the modules that have A and B");
        fits = false;
    }
    if (!lists.empty() && keys.layers_to_transform.empty()) {
        config.wrong("layers_pattern", "which PEFT takes beside layers_to_transform alone",
                     "take it out of the file");
        fits = false;
    }
    if (!fits) return std::nullopt;
    keys.layers_pattern = lists;
    for (const std::string& linear : linears_by_weights()) keys.target_modules.push_back(linear);
    if (::strcasecmp(keys.target_regex.c_str(), "all-linear") == 0) keys.target_regex.clear();
    adapter.r = get("r").get<int>();
    if (vera) {
        adapter.peft_type = PeftType::vera;
    } else {
        adapter.lora_alpha = get("lora_alpha").get<double>();
    }
    adapter.use_rslora = config.flag("use_rslora");
    if (targets.is_null() || targets == "" || targets == Json::array()) adapter.targets.fill(false);
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    read_outer_targets(keys, adapter);
    return adapter;
}

void AdapterConfig::warn_of_dead_rules() const {
    Problems ignored;
    const std::optional<AdapterJob> adapter = modules(ignored);
    if (!adapter) return;
    std::vector<DeadRule> rules = dead_rules(*adapter, model_);
    for (DeadRule& rule : shadowed_rules(*adapter, model_)) rules.push_back(std::move(rule));
    for (const DeadRule& rule : rules) {
        log::warn(cat(path_, ": ", rule.key, ": ", rule.what, " of this ", model_.family,
                      " model, so it has no effect"));
    }
}

}  // namespace loratrain

#include "io/weights/hf_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "io/json_reader.h"
#include "io/weights/hf_quantization.h"
#include "io/weights/hf_rope.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_layers = 10000;  // each makes names of tensors before any is looked for
constexpr const char* not_supported = "this kind of model cannot be trained here";

/// Which layers have sliding_window where layer_types does not say; with on_last_layers and
/// on_layers_without_rope only if use_sliding_window is true.
enum class Windows : std::uint8_t {
    never,
    on_every_layer,
    on_last_layers,
    on_layers_without_rope,
    between_full_layers,  ///< but on every window_interval-th, or sliding_window_pattern-th
};

/// What config.json leaves to the family.
struct Family {
    const char* name = "";
    const char* architecture = "";
    std::int64_t head_dim = 0;          ///< where config.json has none; 0 = hidden / heads
    std::int64_t kv_heads = 0;          ///< where config.json has none; 0 = heads
    bool reads_attention_bias = false;  ///< key attention_bias decides on q, k, v, o
    /// Key attention_bias decides on q, k, v (true where missing), attention_out_bias on o.
    bool reads_out_bias = false;
    bool reads_qkv_bias = false;  ///< key attention_bias decides on q, k, v (true where missing)
    bool reads_mlp_bias = false;
    bool qkv_bias = false;  ///< fixed by the family
    bool qk_norm = false;
    bool reads_multipliers = false;  ///< keys as ModelSpec's, 1 where missing
    bool has_layers_without_rope = false;
    bool tied = false;  ///< tie_word_embeddings where config.json has none
    RopeDefaults rope = {};
    Windows windows = Windows::never;
    std::int64_t window = 4096;  ///< sliding_window where config.json has none; 0 = no window
    std::int64_t window_interval = 0;
    double eps = 1e-6;  ///< rms_norm_eps where config.json has none
    bool qk_norm_whole = false;
    NormPlacement norms = NormPlacement::before;
    NormNames norm_names = NormNames::usual;
    bool norm_plus_one = false;
    bool fused_qkv = false;
    bool fused_gate_up = false;
    const char* activation_key = "hidden_act";
    const char* activation = "silu";  ///< where config.json has none
    /// Keys query_pre_attn_scalar (where missing so much) and the soft caps; embeddings times
    /// sqrt(hidden_size); 0: a family without.
    std::int64_t query_scalar = 0;
    double attention_soft_cap = 0.0;  ///< where config.json has no key; 0 = none
    double logits_soft_cap = 0.0;
};

// The defaults of the configuration classes in HF transformers.
constexpr Family families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .windows = Windows::on_every_layer},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .qkv_bias = true,
     .windows = Windows::on_last_layers},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .head_dim = 128,
     .kv_heads = 32,
     .reads_attention_bias = true,
     .qk_norm = true,
     .windows = Windows::on_last_layers},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .has_layers_without_rope = true,
     .tied = true,
     .rope = {.theta = 2000000.0},
     .windows = Windows::on_layers_without_rope,
     .window = 0},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .reads_multipliers = true},
    {.name = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .head_dim = 128,
     .kv_heads = 8,
     .reads_out_bias = true,
     .reads_mlp_bias = true},
    {.name = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .head_dim = 128,
     .kv_heads = 8,
     .rope = {.theta = 1000000.0, .scales_queries = true, .must_be_told = true},
     .windows = Windows::on_every_layer,
     .window = 0,
     .eps = 1e-5},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .eps = 1e-5,
     .qk_norm_whole = true,
     .norms = NormPlacement::after},
    {.name = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .rope = {.theta = 500000.0, .by_layer_type = true, .window_theta = 500000.0},
     .windows = Windows::between_full_layers,
     .window_interval = 4,
     .eps = 1e-5,
     .qk_norm_whole = true,
     .norms = NormPlacement::after},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .head_dim = 256,
     .kv_heads = 4,
     .reads_attention_bias = true,
     .tied = true,
     .windows = Windows::between_full_layers,
     .window_interval = 2,
     .norms = NormPlacement::both,
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_scalar = 256,
     .attention_soft_cap = 50.0,
     .logits_soft_cap = 30.0},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .head_dim = 256,
     .kv_heads = 4,
     .reads_attention_bias = true,
     .qk_norm = true,
     .tied = true,
     .rope = {.theta = 1000000.0, .by_layer_type = true, .window_theta = 10000.0},
     .windows = Windows::between_full_layers,
     .window_interval = 6,
     .norms = NormPlacement::both,
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_scalar = 256},
    {.name = "glm4",
     .architecture = "Glm4ForCausalLM",
     .head_dim = 128,
     .kv_heads = 2,
     .reads_qkv_bias = true,
     .rope = {.rotated = 0.5, .interleaved = true},
     .eps = 1.5625e-7,
     .norms = NormPlacement::both,
     .norm_names = NormNames::glm4,
     .fused_gate_up = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .rope = {.rotated = 1.0, .longrope = true},
     .windows = Windows::on_every_layer,
     .window = 0,
     .eps = 1e-5,
     .fused_qkv = true,
     .fused_gate_up = true},
    {.name = "apertus",
     .architecture = "ApertusForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .rope = {.theta = 12000000.0, .must_be_told = true},
     .eps = 1e-5,
     .norm_names = NormNames::apertus,
     .activation = "xielu"},
};

/// Configs around a text model, which is their text_config.
struct Wrapper {
    const char* name = "";
    const char* architecture = "";
};

constexpr Wrapper wrappers[] = {{"gemma3", "Gemma3ForConditionalGeneration"},
                                {"mistral3", "Mistral3ForConditionalGeneration"}};

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const Family& family : families) names.emplace_back(family.name);
    for (const Wrapper& wrapper : wrappers) names.emplace_back(wrapper.name);
    return names;
}

const Family* find_family(JsonReader& config) {
    const std::string type = config.text("model_type");
    for (const Family& family : families) {
        if (type == family.name) return &family;
    }
    const std::string known = "model families that can be trained: " + join(family_names(), ", ");
    if (!config.has("model_type")) {
        config.add("'model_type' is missing", known);
    } else if (!type.empty()) {
        config.wrong("model_type", "which is not supported", known);
    }
    return nullptr;
}

void check_architecture(JsonReader& config, const char* architecture) {
    const Json& list = config.get("architectures");
    if (list.is_null() || (list.is_array() && list.empty())) return;
    if (list.is_array() && list[0] == architecture) return;
    config.wrong("architectures", cat("must be [\"", architecture, "\"]"), not_supported);
}

/// Switches whose mere presence means another kind of model.
void check_refused_keys(JsonReader& config) {
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        if (config.has(key) && config.get(key) != 0) {
            config.wrong(key, "a mixture of experts", not_supported);
        }
    }
    if (config.has("use_bidirectional_attention") && config.flag("use_bidirectional_attention")) {
        config.wrong("use_bidirectional_attention", "only causal attention is supported",
                     not_supported);
    }
}

void read_activation(JsonReader& config, const Family& family, ModelSpec& spec) {
    std::string name = config.text(family.activation_key);
    if (name.empty()) name = family.activation;
    const std::string usual = family.activation;
    if (usual == "xielu") {
        spec.activation = Activation::xielu;
        if (name != usual) config.wrong(family.activation_key, "must be xielu", not_supported);
        return;
    }
    if (name == "gelu_pytorch_tanh") {
        spec.activation = Activation::gelu_tanh;
    } else if (name != "silu" && name != "swish") {
        config.wrong(family.activation_key, "only silu and gelu_pytorch_tanh are supported",
                     not_supported);
    }
}

/// sliding_window where it is switched on, else 0.
std::int64_t active_window(JsonReader& config, const Family& family) {
    if (family.windows == Windows::never) return 0;
    const bool has_switch = family.windows == Windows::on_last_layers ||
                            family.windows == Windows::on_layers_without_rope;
    if (has_switch && !config.flag("use_sliding_window")) return 0;
    if (!config.contains("sliding_window")) return family.window;
    return config.count("sliding_window").value_or(0);
}

/// Where layer_types does not say.
bool has_window_by_rule(JsonReader& config, const Family& family, const ModelSpec& spec,
                        std::int64_t layer) {
    if (family.windows == Windows::on_layers_without_rope) return !spec.layer(layer).rope;
    if (family.windows == Windows::between_full_layers) {
        const Json& pattern = config.get("sliding_window_pattern");
        const std::int64_t interval = pattern.is_number_unsigned() && pattern != 0
                                          ? pattern.get<std::int64_t>()
                                          : family.window_interval;
        return (layer + 1) % interval != 0;
    }
    if (family.windows != Windows::on_last_layers) return true;
    const Json& first = config.get("max_window_layers");
    constexpr std::int64_t family_default = 28;
    return layer >= (first.is_number_unsigned() ? first.get<std::int64_t>() : family_default);
}

/// layer_types: full_attention or sliding_attention for every layer.
void check_layer_types(JsonReader& config, const Family& family, std::int64_t layers,
                       std::int64_t window) {
    const Json& types = config.get("layer_types");
    if (types.is_null()) return;
    const bool windows = family.windows != Windows::never;
    const auto is_known = [&](const Json& type) {
        return type == "full_attention" || (windows && type == "sliding_attention");
    };
    const auto is_of = [&](const char* what) {
        return [what](const Json& type) { return type == what; };
    };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_known)) {
        config.wrong(
            "layer_types",
            cat("every layer must have full_attention", windows ? " or sliding_attention" : ""),
            "other kinds of layers are not supported for this family");
    } else if (std::ssize(types) != layers) {
        config.wrong("layer_types", cat("must have one for each of the ", layers, " layers"));
    } else if (window == 0 && std::any_of(types.begin(), types.end(), is_of("sliding_attention"))) {
        config.wrong("layer_types", "names sliding_attention, but there is no sliding_window",
                     "give sliding_window (and use_sliding_window: true where the family has it)");
    } else if (window > 0 && family.windows == Windows::on_every_layer &&
               std::any_of(types.begin(), types.end(), is_of("full_attention"))) {
        config.wrong("layer_types", cat("but sliding_window ", window, " is of every layer"),
                     "remove one of them");
    }
}

void read_windows(JsonReader& config, const Family& family, ModelSpec& spec) {
    const std::int64_t window = active_window(config, family);
    check_layer_types(config, family, spec.layers, window);
    if (window == 0 || spec.layers > most_layers) return;
    const Json& types = config.get("layer_types");
    spec.layer_specs.resize(static_cast<std::size_t>(spec.layers));
    for (std::int64_t i = 0; i < spec.layers; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool told = types.is_array() && at < types.size();
        const bool slides =
            told ? types[at] == "sliding_attention" : has_window_by_rule(config, family, spec, i);
        if (slides) spec.layer_specs[at].window = window;
    }
}

void read_dimensions(JsonReader& config, const Family& family, ModelSpec& spec) {
    spec.vocab_size = config.required_count("vocab_size");
    spec.hidden_size = config.required_count("hidden_size");
    spec.intermediate_size = config.required_count("intermediate_size");
    spec.layers = config.required_count("num_hidden_layers");
    if (spec.layers > most_layers) {
        config.wrong("num_hidden_layers", cat("must be at most ", most_layers));
    }
    spec.heads = config.required_count("num_attention_heads");
    // A null means one key-value head per head, a missing key the family's default.
    const bool named = config.has("num_key_value_heads");
    const bool null = !named && config.contains("num_key_value_heads");
    const std::int64_t missing = null || family.kv_heads == 0 ? spec.heads : family.kv_heads;
    spec.kv_heads = named ? config.count("num_key_value_heads").value_or(0) : missing;
    if (spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0) {
        config.add(cat("num_attention_heads ", spec.heads,
                       " is no multiple of num_key_value_heads ", spec.kv_heads,
                       named ? "" : " (the family's default)"));
    }
}

void read_head_dim(JsonReader& config, const Family& family, ModelSpec& spec) {
    if (config.has("head_dim")) {
        spec.head_dim = config.count("head_dim").value_or(0);
    } else if (family.head_dim > 0 && !config.contains("head_dim")) {
        spec.head_dim = family.head_dim;
    } else if (spec.heads > 0 && spec.hidden_size > 0) {
        if (spec.hidden_size % spec.heads != 0) {
            config.add(cat("hidden_size ", spec.hidden_size,
                           " is no multiple of num_attention_heads ", spec.heads,
                           " and there is no head_dim"));
        }
        spec.head_dim = spec.hidden_size / spec.heads;
    }
    if (spec.head_dim % 2 != 0) {
        config.add(cat("head_dim ", spec.head_dim, " is odd; rotary positions need pairs"));
    }
}

void read_family_switches(JsonReader& config, const Family& family, ModelSpec& spec) {
    const bool attention_bias = family.reads_attention_bias && config.flag("attention_bias");
    const auto flag = [&](const char* key, bool missing) {
        return config.has(key) ? config.flag(key) : missing;
    };
    spec.qkv_bias = family.qkv_bias || attention_bias;
    spec.o_bias = attention_bias;
    if (family.reads_qkv_bias) spec.qkv_bias = flag("attention_bias", true);
    if (family.reads_out_bias) {
        spec.qkv_bias = flag("attention_bias", true);
        spec.o_bias = flag("attention_out_bias", false);
    }
    spec.mlp_bias = family.reads_mlp_bias && config.flag("mlp_bias");
    spec.qk_norm = family.qk_norm;
    spec.qk_norm_whole = family.qk_norm_whole;
    spec.norms = family.norms;
    spec.norm_names = family.norm_names;
    spec.fused_qkv = family.fused_qkv;
    spec.fused_gate_up = family.fused_gate_up;
    spec.norm_plus_one = family.norm_plus_one;
    spec.tie_word_embeddings = flag("tie_word_embeddings", family.tied);
    spec.rms_norm_eps = config.positive("rms_norm_eps").value_or(family.eps);
    const Json& pad = config.get("pad_token_id");
    if (pad.is_number_integer()) spec.pad_token = pad.get<std::int64_t>();
}

void read_multipliers(JsonReader& config, const Family& family, ModelSpec& spec) {
    if (!family.reads_multipliers) return;
    spec.embedding_multiplier = config.positive("embedding_multiplier").value_or(1.0);
    spec.attention_multiplier = config.positive("attention_multiplier").value_or(1.0);
    spec.residual_multiplier = config.positive("residual_multiplier").value_or(1.0);
    spec.logits_scaling = config.positive("logits_scaling").value_or(1.0);
}

void read_scalars_and_caps(JsonReader& config, const Family& family, ModelSpec& spec) {
    if (family.query_scalar == 0) return;
    const auto scalar = config.positive("query_pre_attn_scalar");
    spec.attention_multiplier =
        1.0 / std::sqrt(scalar.value_or(static_cast<double>(family.query_scalar)));
    spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
    spec.embeds_scaled = true;
    const auto cap = [&](const char* key, double missing) {
        return config.contains(key) ? config.positive(key).value_or(0.0) : missing;
    };
    spec.attention_soft_cap = cap("attn_logit_softcapping", family.attention_soft_cap);
    spec.logits_soft_cap = cap("final_logit_softcapping", family.logits_soft_cap);
}

/// no_rope_layers has a 1 for every layer with rotary positions and a 0 for every other one.
void read_layers_without_rope(JsonReader& config, const Family& family, ModelSpec& spec) {
    if (!family.has_layers_without_rope || spec.layers > most_layers) return;
    const auto layers = static_cast<std::size_t>(spec.layers);
    const Json& list = config.get("no_rope_layers");
    const auto is_flag = [](const Json& value) { return value == 0 || value == 1; };
    spec.layer_specs.resize(layers);
    if (list.is_null()) {
        constexpr std::int64_t family_default = 4;
        const bool given = config.has("no_rope_layer_interval");
        const std::int64_t interval =
            given ? config.required_count("no_rope_layer_interval") : family_default;
        for (std::int64_t i = interval - 1; interval > 0 && i < spec.layers; i += interval) {
            spec.layer_specs[static_cast<std::size_t>(i)].rope = false;
        }
    } else if (!list.is_array() || list.size() < layers ||
               !std::all_of(list.begin(), list.end(), is_flag)) {
        config.wrong("no_rope_layers", cat("must be a list with a 1 (rotary positions) or a 0 for "
                                           "each of the ",
                                           layers, " layers"));
    } else {
        for (std::size_t i = 0; i < layers; ++i) spec.layer_specs[i].rope = list[i] == 1;
    }
}

void read_unlike_layers(JsonReader& config, const Family& family, ModelSpec& spec) {
    read_layers_without_rope(config, family, spec);
    read_windows(config, family, spec);
    const auto is_usual = [](const LayerSpec& layer) { return layer == LayerSpec{}; };
    if (std::all_of(spec.layer_specs.begin(), spec.layer_specs.end(), is_usual)) {
        spec.layer_specs.clear();
    }
}

const Wrapper* wrapper_of(const Json& document) {
    const auto type = document.find("model_type");
    for (const Wrapper& wrapper : wrappers) {
        if (type != document.end() && *type == wrapper.name) return &wrapper;
    }
    return nullptr;
}

/// text_config with what the config around it says of it. Tied embeddings are the wrapper's, which
/// has them where it does not say.
Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where) {
    const auto found = document.find("text_config");
    if (found == document.end() || !found->is_object()) {
        throw InputError(where, cat("has no text_config, which a ", wrapper.name, " has"),
                         "give the config.json of the whole model");
    }
    Json text = *found;
    text.erase("architectures");
    const auto outer = document.find("tie_word_embeddings");
    if (outer != document.end()) text["tie_word_embeddings"] = *outer;
    if (!text.contains("tie_word_embeddings")) text["tie_word_embeddings"] = true;
    const auto quantization = document.find("quantization_config");
    if (quantization != document.end()) text["quantization_config"] = *quantization;
    return text;
}

ModelSpec parse_text_model(const Json& document, const std::string& where, Problems& problems) {
    JsonReader config(document, where, "", problems);
    ModelSpec spec;
    const Family* family = find_family(config);
    check_refused_keys(config);
    // An unknown family is judged like a llama, so that further problems are named as well.
    const Family& assumed = family != nullptr ? *family : families[0];
    if (family != nullptr) check_architecture(config, assumed.architecture);
    spec.family = assumed.name;
    read_dimensions(config, assumed, spec);
    read_head_dim(config, assumed, spec);
    read_unlike_layers(config, assumed, spec);
    read_ropes(config, assumed.rope, spec);
    read_activation(config, assumed, spec);
    read_family_switches(config, assumed, spec);
    read_multipliers(config, assumed, spec);
    read_scalars_and_caps(config, assumed, spec);
    spec.quantization = read_hf_quantization(config);
    return spec;
}

}  // namespace

std::int64_t max_positions_of(const std::string& json_text) {
    Json config = parse_json(json_text, "config.json");
    if (const Wrapper* wrapper = wrapper_of(config)) {
        config = text_config(config, *wrapper, "config.json");
    }
    const auto found = config.find("max_position_embeddings");
    const bool told = found != config.end() && found->is_number_integer();
    return told ? std::max<std::int64_t>(0, found->get<std::int64_t>()) : 0;
}

ModelSpec parse_hf_config(const std::string& json_text, const std::string& where) {
    const Json document = parse_json(json_text, where);
    if (!document.is_object()) {
        throw InputError(where, "holds " + json_kind(document) + ", must be an object",
                         "give the config.json of a Hugging Face model");
    }
    Problems problems;
    const Wrapper* wrapper = wrapper_of(document);
    if (wrapper == nullptr) {
        ModelSpec spec = parse_text_model(document, where, problems);
        problems.throw_if_any();
        return spec;
    }
    JsonReader outer(document, where, "", problems);
    check_architecture(outer, wrapper->architecture);
    ModelSpec spec =
        parse_text_model(text_config(document, *wrapper, where), where + ":text_config", problems);
    spec.wrapper = wrapper->name;
    problems.throw_if_any();
    return spec;
}

}  // namespace loratrain

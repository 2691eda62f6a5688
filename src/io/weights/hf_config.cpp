#include "io/weights/hf_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "io/json_reader.h"
#include "io/weights/hf_quantization.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_layers = 10000;  // each makes names of tensors before any is looked for
constexpr const char* not_supported = "this kind of model cannot be trained here";

/// Which layers have sliding_window where layer_types does not say; with all but on_every_layer
/// only if use_sliding_window is true.
enum class Windows : std::uint8_t { never, on_every_layer, on_last_layers, on_layers_without_rope };

/// What config.json leaves to the family.
struct Family {
    const char* name = "";
    const char* architecture = "";
    std::int64_t head_dim = 0;          ///< where config.json has none; 0 = hidden / heads
    std::int64_t kv_heads = 0;          ///< where config.json has none; 0 = heads
    bool reads_attention_bias = false;  ///< key attention_bias decides on q, k, v, o
    /// Key attention_bias decides on q, k, v (true where missing), attention_out_bias on o.
    bool reads_out_bias = false;
    bool reads_mlp_bias = false;
    bool qkv_bias = false;  ///< fixed by the family
    bool qk_norm = false;
    bool reads_multipliers = false;  ///< keys as ModelSpec's, 1 where missing
    bool has_layers_without_rope = false;
    bool tied = false;       ///< tie_word_embeddings where config.json has none
    double theta = 10000.0;  ///< where config.json has none
    Windows windows = Windows::never;
    std::int64_t window = 4096;  ///< sliding_window where config.json has none; 0 = no window
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
     .theta = 2000000.0,
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
};

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const Family& family : families) names.emplace_back(family.name);
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

void check_architecture(JsonReader& config, const Family& family) {
    const Json& list = config.get("architectures");
    if (list.is_null() || (list.is_array() && list.empty())) return;
    if (list.is_array() && list[0] == family.architecture) return;
    config.wrong("architectures", cat("must be [\"", family.architecture, "\"]"), not_supported);
}

/// Switches whose mere presence means another kind of model.
void check_refused_keys(JsonReader& config) {
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        if (config.has(key) && config.get(key) != 0) {
            config.wrong(key, "a mixture of experts", not_supported);
        }
    }
    const std::string activation = config.text("hidden_act");
    if (!activation.empty() && activation != "silu" && activation != "swish") {
        config.wrong("hidden_act", "only silu is supported", not_supported);
    }
}

/// sliding_window where it is switched on, else 0.
std::int64_t active_window(JsonReader& config, const Family& family) {
    if (family.windows == Windows::never) return 0;
    const bool has_switch = family.windows != Windows::on_every_layer;
    if (has_switch && !config.flag("use_sliding_window")) return 0;
    if (!config.contains("sliding_window")) return family.window;
    return config.count("sliding_window").value_or(0);
}

/// Where layer_types does not say.
bool has_window_by_rule(JsonReader& config, const Family& family, const ModelSpec& spec,
                        std::int64_t layer) {
    if (family.windows == Windows::on_layers_without_rope) return !spec.layer(layer).rope;
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

std::int64_t read_original_positions(JsonReader& rope, JsonReader& config) {
    constexpr const char* original = "original_max_position_embeddings";
    return config.has(original) && !rope.has(original) ? config.required_count(original)
                                                       : rope.required_count(original);
}

/// By how much q and k get longer, where attention_factor does not say.
double yarn_length(JsonReader& rope, double factor) {
    const auto length = [factor](double mscale) {
        return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
    };
    const auto one = rope.positive("mscale");
    const auto all = rope.positive("mscale_all_dim");
    return one && all ? length(*one) / length(*all) : length(1.0);
}

void read_yarn_rope(JsonReader& rope, JsonReader& config, RopeSpec& spec) {
    spec.beta_fast = rope.positive("beta_fast").value_or(spec.beta_fast);
    spec.beta_slow = rope.positive("beta_slow").value_or(spec.beta_slow);
    if (rope.has("truncate")) spec.truncate = rope.flag("truncate");
    spec.original_max_position = read_original_positions(rope, config);
    spec.attention_factor =
        rope.positive("attention_factor").value_or(yarn_length(rope, spec.factor));
}

void read_llama3_rope(JsonReader& rope, JsonReader& config, RopeSpec& spec) {
    spec.low_freq_factor = rope.required_positive("low_freq_factor");
    spec.high_freq_factor = rope.required_positive("high_freq_factor");
    spec.original_max_position = read_original_positions(rope, config);
    if (spec.high_freq_factor <= spec.low_freq_factor && !rope.get("high_freq_factor").is_null()) {
        rope.wrong("high_freq_factor", "must be greater than low_freq_factor");
    }
}

/// One object of rotary settings, in the older (`type`) or newer (`rope_type`) spelling.
RopeSpec read_rope_object(JsonReader& config, const char* key) {
    RopeSpec spec;
    const Json& object = config.get(key);
    if (!object.is_object()) {
        config.wrong(key, "must be an object");
        return spec;
    }
    JsonReader rope(object, config.where(), std::string(key) + ".", config.problems());
    const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
    const std::string type = rope.text(type_key);
    const bool known_key = rope.has(type_key);
    if (rope.has("rope_theta")) spec.theta = rope.required_positive("rope_theta");
    const bool has_factor = type == "linear" || type == "llama3" || type == "yarn";
    if (has_factor) spec.factor = rope.required_positive("factor");
    if (type == "linear") {
        spec.type = RopeType::linear;
    } else if (type == "llama3") {
        spec.type = RopeType::llama3;
        read_llama3_rope(rope, config, spec);
    } else if (type == "yarn") {
        spec.type = RopeType::yarn;
        read_yarn_rope(rope, config, spec);
    } else if (known_key && type != "default") {
        rope.wrong(type_key, "which is not supported",
                   "known types: default, linear, llama3, yarn");
    } else if (!known_key && (rope.has("factor") || !rope.has("rope_theta"))) {
        rope.add(std::string(key) + " names no rope_type");
    }
    if (rope.has("partial_rotary_factor") && rope.get("partial_rotary_factor") != 1) {
        rope.wrong("partial_rotary_factor", "must be 1", not_supported);
    }
    return spec;
}

bool same_rope(const RopeSpec& a, const RopeSpec& b) {
    RopeSpec with_theta = b;
    with_theta.theta = a.theta;
    return a == with_theta;
}

RopeSpec read_rope(JsonReader& config, const Family& family) {
    const bool newer = config.has("rope_parameters");
    const bool older = config.has("rope_scaling");
    RopeSpec spec;
    spec.theta = family.theta;
    if (config.has("rope_theta")) spec.theta = config.required_positive("rope_theta");
    const double outer_theta = spec.theta;
    if (newer || older) {
        const char* key = newer ? "rope_parameters" : "rope_scaling";
        spec = read_rope_object(config, key);
        const Json& object = config.get(key);
        if (!object.is_object() || !object.contains("rope_theta")) spec.theta = outer_theta;
    }
    if (newer && older && !same_rope(spec, read_rope_object(config, "rope_scaling"))) {
        config.add("rope_parameters and rope_scaling contradict each other", "remove one of them");
    }
    if (config.has("partial_rotary_factor") && config.get("partial_rotary_factor") != 1) {
        config.wrong("partial_rotary_factor", "must be 1", not_supported);
    }
    return spec;
}

void read_family_switches(JsonReader& config, const Family& family, ModelSpec& spec) {
    const bool attention_bias = family.reads_attention_bias && config.flag("attention_bias");
    const auto flag = [&](const char* key, bool missing) {
        return config.has(key) ? config.flag(key) : missing;
    };
    spec.qkv_bias = family.qkv_bias || attention_bias;
    spec.o_bias = attention_bias;
    if (family.reads_out_bias) {
        spec.qkv_bias = flag("attention_bias", true);
        spec.o_bias = flag("attention_out_bias", false);
    }
    spec.mlp_bias = family.reads_mlp_bias && config.flag("mlp_bias");
    spec.qk_norm = family.qk_norm;
    spec.tie_word_embeddings = flag("tie_word_embeddings", family.tied);
    spec.rms_norm_eps = config.positive("rms_norm_eps").value_or(1e-6);
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

}  // namespace

std::int64_t max_positions_of(const std::string& json_text) {
    const Json config = parse_json(json_text, "config.json");
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
    JsonReader config(document, where, "", problems);
    ModelSpec spec;
    const Family* family = find_family(config);
    check_refused_keys(config);
    // An unknown family is judged like a llama, so that further problems are named as well.
    const Family& assumed = family != nullptr ? *family : families[0];
    if (family != nullptr) check_architecture(config, assumed);
    spec.family = assumed.name;
    read_dimensions(config, assumed, spec);
    read_head_dim(config, assumed, spec);
    read_unlike_layers(config, assumed, spec);
    spec.rope = read_rope(config, assumed);
    read_family_switches(config, assumed, spec);
    read_multipliers(config, assumed, spec);
    spec.quantization = read_hf_quantization(config);
    problems.throw_if_any();
    return spec;
}

}  // namespace loratrain

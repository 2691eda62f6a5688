#include "io/weights/hf_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/json_reader.h"
#include "io/weights/hf_document.h"
#include "io/weights/hf_experts.h"
#include "io/weights/hf_family.h"
#include "io/weights/hf_layers.h"
#include "io/weights/hf_quantization.h"
#include "io/weights/hf_rope.h"

namespace loratrain {

namespace {

constexpr const char* not_supported = "this kind of model cannot be trained here";

void check_architecture(JsonReader& config, const char* architecture) {
    const Json& list = config.get("architectures");
    if (list.is_null() || (list.is_array() && list.empty())) return;
    if (list.is_array() && list[0] == architecture) return;
    config.wrong("architectures", cat("must be [\"", architecture, "\"]"), not_supported);
}

/// Switches whose mere presence means another kind of model.
void check_refused_keys(JsonReader& config) {
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

void read_dimensions(JsonReader& config, const Family& family, ModelSpec& spec) {
    for (const FamilySize& size : family_sizes(family)) {
        spec.*size.field = config.has(size.key) ? config.required_count(size.key) : size.missing;
    }
    if (spec.layers > most_layers) {
        config.wrong("num_hidden_layers", cat("must be at most ", most_layers));
    }
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
    if (!config.contains("pad_token_id")) spec.pad_token = family.sizes.pad_token;
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
    if (family.attention_soft_cap > 0.0) {
        spec.attention_soft_cap = cap("attn_logit_softcapping", family.attention_soft_cap);
    }
    spec.logits_soft_cap = cap("final_logit_softcapping", family.logits_soft_cap);
}

ModelSpec parse_text_model(const Json& document, const std::string& where, Problems& problems) {
    JsonReader config(document, where, "", problems);
    ModelSpec spec;
    const Family* family = find_family(config);
    check_refused_keys(config);
    // An unknown family is judged like a llama, so that further problems are named as well.
    const Family& assumed = family != nullptr ? *family : model_families().front();
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
    read_experts(config, assumed, spec);
    spec.quantization = read_hf_quantization(config);
    if (spec.has_experts() && spec.quantization) {
        config.wrong("quantization_config", "quantised experts are not supported",
                     "import the model as it was before, in bf16");
    }
    return spec;
}

}  // namespace

std::int64_t max_positions_of(const std::string& json_text) {
    const Json config = text_document(parse_json(json_text, "config.json"), "config.json");
    const auto found = config.find("max_position_embeddings");
    const bool given = found != config.end() && found->is_number_integer();
    return given ? std::max<std::int64_t>(0, found->get<std::int64_t>()) : 0;
}

std::vector<std::int32_t> end_tokens_of(const std::string& json_text) {
    const Json config = parse_json(json_text, "config.json");
    const Json of_text = text_document(config, "config.json");
    const bool outside = of_text.value("eos_token_id", Json()).is_null();
    const Json given = (outside ? config : of_text).value("eos_token_id", Json());
    std::vector<std::int32_t> tokens;
    for (const Json& token : given.is_array() ? given : Json::array({given})) {
        if (token.is_number_integer()) tokens.push_back(token.get<std::int32_t>());
    }
    return tokens;
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
    spec.logits_soft_cap = 0.0;  // the classes of wrappers have none
    problems.throw_if_any();
    return spec;
}

}  // namespace loratrain

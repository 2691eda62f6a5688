#include "io/weights/hf_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/model_limits.h"
#include "io/json_reader.h"
#include "io/weights/hf_family.h"
#include "io/weights/hf_latent.h"
#include "io/weights/hf_layers.h"
#include "io/weights/hf_quantized_linears.h"
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

Activation read_activation(JsonReader& config, const Family& family) {
    std::string name = config.text(family.activation_key);
    if (name.empty()) name = family.activation;
    const std::string usual = family.activation;
    if (usual == "xielu" || usual == "relu2") {
        if (name != usual) config.wrong(family.activation_key, "must be " + usual, not_supported);
        return usual == "xielu" ? Activation::xielu : Activation::relu_squared;
    }
    if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
    if (name != "silu" && name != "swish") {
        config.wrong(family.activation_key, "only silu and gelu_pytorch_tanh are supported",
                     not_supported);
    }
    return Activation::silu;
}

ClassSizes read_sizes(JsonReader& config, const Family& family) {
    ClassSizes sizes;
    for (const FamilySize& size : family_sizes(family)) {
        sizes.*size.field = config.has(size.key) ? config.required_count(size.key) : size.missing;
    }
    if (sizes.layers > most_layers) {
        config.wrong("num_hidden_layers", cat("must be at most ", most_layers));
    }
    return sizes;
}

void read_heads(JsonReader& config, const Family& family, const ClassSizes& sizes,
                AttentionSpec& attention) {
    attention.heads = sizes.heads;
    // A null means one key-value head per head, a missing key the family's default.
    const bool named = config.has("num_key_value_heads");
    const bool null = !named && config.contains("num_key_value_heads");
    const std::int64_t missing = null || family.kv_heads == 0 ? sizes.heads : family.kv_heads;
    attention.kv_heads = named ? config.count("num_key_value_heads").value_or(0) : missing;
    if (sizes.heads > 0 && attention.kv_heads > 0 && sizes.heads % attention.kv_heads != 0) {
        config.add(cat("num_attention_heads ", sizes.heads,
                       " is not a multiple of num_key_value_heads ", attention.kv_heads,
                       named ? "" : " (the family's default)"));
    }
}

std::int64_t read_head_dim(JsonReader& config, const Family& family, const ClassSizes& sizes) {
    std::int64_t head_dim = 0;
    if (config.has("head_dim")) {
        head_dim = config.count("head_dim").value_or(0);
    } else if (family.head_dim > 0 && !config.contains("head_dim")) {
        head_dim = family.head_dim;
    } else if (sizes.heads > 0 && sizes.hidden > 0) {
        if (sizes.hidden % sizes.heads != 0) {
            config.add(cat("hidden_size ", sizes.hidden,
                           " is not a multiple of num_attention_heads ", sizes.heads,
                           " and there is no head_dim"));
        }
        head_dim = sizes.hidden / sizes.heads;
    }
    if (head_dim % 2 != 0) {
        config.add(cat("head_dim ", head_dim, " is odd; rotary positions need pairs"));
    }
    return head_dim;
}

bool flag(JsonReader& config, const char* key, bool missing) {
    return config.has(key) ? config.flag(key) : missing;
}

void read_attention_switches(JsonReader& config, const Family& family, AttentionSpec& attention) {
    const bool attention_bias = flag(config, family.attention_bias_key, family.attention_bias);
    attention.qkv_bias = attention.qkv_bias || attention_bias;
    attention.o_bias = attention.o_bias || attention_bias;
    if (family.qkv_bias_key[0] != '\0') {
        attention.qkv_bias = flag(config, family.qkv_bias_key, family.qkv_bias);
    }
    if (family.reads_qk_norm) attention.qk_norm = flag(config, "use_qk_norm", false);
    if (family.reads_out_bias) {
        attention.qkv_bias = flag(config, "attention_bias", true);
        attention.o_bias = flag(config, "attention_out_bias", false);
    }
}

void read_model_switches(JsonReader& config, const Family& family, ModelSpec& spec) {
    spec.norm_plus_one = family.norm_plus_one;
    spec.tie_word_embeddings = flag(config, "tie_word_embeddings", family.tied);
    spec.rms_norm_eps = config.positive("rms_norm_eps").value_or(family.eps);
    if (!config.contains("pad_token_id")) spec.pad_token = family.sizes.pad_token;
    const Json& pad = config.get("pad_token_id");
    if (pad.is_number_integer()) spec.pad_token = pad.get<std::int64_t>();
}

void read_multipliers(JsonReader& config, const Family& family, ModelSpec& spec,
                      AttentionSpec& attention) {
    if (!family.reads_multipliers) return;
    spec.embedding_multiplier = config.positive("embedding_multiplier").value_or(1.0);
    attention.multiplier = config.positive("attention_multiplier").value_or(1.0);
    spec.residual_multiplier = config.positive("residual_multiplier").value_or(1.0);
    spec.logits_scaling = config.positive("logits_scaling").value_or(1.0);
}

void read_scalars_and_caps(JsonReader& config, const Family& family, ModelSpec& spec,
                           AttentionSpec& attention) {
    if (family.query_pre_attn_scalar == 0) return;
    const auto scalar = config.positive("query_pre_attn_scalar");
    attention.multiplier =
        1.0 / std::sqrt(scalar.value_or(static_cast<double>(family.query_pre_attn_scalar)));
    spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
    spec.embeds_scaled = true;
    const auto cap = [&](const char* key, double missing) {
        return config.contains(key) ? config.positive(key).value_or(0.0) : missing;
    };
    if (family.attention_soft_cap > 0.0) {
        attention.soft_cap = cap("attn_logit_softcapping", family.attention_soft_cap);
    }
    spec.logits_soft_cap = cap("final_logit_softcapping", family.logits_soft_cap);
}

/// `layer`, but for what each has of its own.
std::vector<LayerSpec> unlike_layers(const LayerSpec& layer, const std::vector<LayerTraits>& traits,
                                     const Ropes& ropes, const std::optional<DeltaNetSpec>& net,
                                     const std::optional<ExpertSpec>& experts) {
    std::vector<LayerSpec> layers(traits.size(), layer);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (experts && !traits[i].is_dense) layers[i].mlp = *experts;
        if (net && traits[i].has_delta) {
            layers[i].mixer = *net;
            continue;
        }
        AttentionSpec& attention = layers[i].attention();
        attention.sliding_window = traits[i].sliding_window;
        attention.rope.reset();
        if (!traits[i].rotates) continue;
        attention.rope = attention.sliding_window > 0 ? ropes.sliding : ropes.full;
    }
    return layers;
}

void refuse_what_cannot_be(JsonReader& config, const ModelSpec& spec) {
    if (const ModelLimit* limit = limit_of(spec, Ability::training)) {
        config.add(limit->what(spec), limit->hint);
    }
}

ModelSpec parse_text_model(const Json& document, const std::string& where, Problems& problems) {
    JsonReader config(document, where, "", problems);
    const Family* family = find_family(config);
    check_refused_keys(config);
    // An unknown family is judged like a llama, so that further problems are named as well.
    const Family& assumed = family != nullptr ? *family : model_families().front();
    if (family != nullptr) check_architecture(config, assumed.architecture);
    const ClassSizes sizes = read_sizes(config, assumed);
    ModelSpec spec;
    spec.family = assumed.name;
    spec.vocab_size = sizes.vocabulary;
    spec.hidden_size = sizes.hidden;
    LayerSpec layer{assumed.attention, assumed.mlp, assumed.norms};
    AttentionSpec& attention = layer.attention();
    read_heads(config, assumed, sizes, attention);
    if (attention.latent) {
        read_latent(config, assumed, attention);
    } else {
        attention.head_dim = read_head_dim(config, assumed, sizes);
    }
    std::vector<LayerTraits> traits = read_layer_traits(config, assumed, sizes.layers);
    read_dense_layers(config, assumed, traits);
    const Ropes ropes = attention.latent ? read_latent_ropes(config, assumed, attention)
                                         : read_ropes(config, assumed.rope, attention.head_dim);
    layer.dense().size = sizes.intermediate;
    layer.dense().activation = read_activation(config, assumed);
    read_attention_switches(config, assumed, attention);
    layer.dense().bias = flag(config, assumed.mlp_bias_key, false);
    read_model_switches(config, assumed, spec);
    read_multipliers(config, assumed, spec, attention);
    read_scalars_and_caps(config, assumed, spec, attention);
    auto experts = read_experts(config, assumed, sizes);
    const bool is_own = assumed.experts.missing.activation != Activation::silu;
    if (experts && !is_own) experts->activation = layer.dense().activation;
    const auto net = read_delta_net(config, assumed);
    spec.set_layers(unlike_layers(layer, traits, ropes, net, experts));
    const bool is_widened = experts && experts->names == ExpertNames::gpt_oss && is_mxfp4(config);
    if (!is_widened) spec.quantization = read_hf_quantization(config);
    refuse_what_cannot_be(config, spec);
    return spec;
}

}  // namespace

std::int64_t max_positions_of(const std::string& json_text) {
    const Json config = text_document(parse_json(json_text, "config.json"), "config.json");
    const auto found = config.find("max_position_embeddings");
    const bool given = found != config.end() && found->is_number_integer();
    return given ? std::max<std::int64_t>(0, found->get<std::int64_t>()) : 0;
}

std::int64_t further_layers_of(const std::string& json_text) {
    const Json config = text_document(parse_json(json_text, "config.json"), "config.json");
    const Family* family = family_named(config.value("model_type", ""));
    const auto found = config.find(family != nullptr ? family->further_layers.count_key : "");
    const bool given = found != config.end() && found->is_number_unsigned();
    return given ? std::min(found->get<std::int64_t>(), most_layers) : 0;
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

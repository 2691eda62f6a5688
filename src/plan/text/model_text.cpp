#include "plan/text/model_text.h"

#include <array>
#include <string_view>
#include <vector>

#include "plan/text/yaml_values.h"

namespace loratrain::plan_yaml {

namespace {

constexpr std::array<Word<RopeType>, 5> rope_words{{{"standard", RopeType::standard},
                                                    {"linear", RopeType::linear},
                                                    {"llama3", RopeType::llama3},
                                                    {"yarn", RopeType::yarn},
                                                    {"longrope", RopeType::longrope}}};

constexpr std::array<Word<NormPlacement>, 3> norm_words{{{"before", NormPlacement::before},
                                                         {"after", NormPlacement::after},
                                                         {"both", NormPlacement::both}}};

constexpr std::array<Word<NormNames>, 3> norm_name_words{
    {{"usual", NormNames::usual}, {"glm4", NormNames::glm4}, {"apertus", NormNames::apertus}}};

constexpr std::array<Word<Activation>, 3> activation_words{{{"silu", Activation::silu},
                                                            {"gelu_tanh", Activation::gelu_tanh},
                                                            {"xielu", Activation::xielu}}};

// ---- writing

std::string quantization_text(const ModelSpec& m) {
    if (!m.quantization) return "";
    return cat(", quantization: ", traits_of(m.quantization->format).name,
               ", source_type: ", name_of(m.quantization->source));
}

std::string longrope_text(const RopeSpec& rope) {
    std::vector<std::string> factors;
    for (const double factor : rope.short_factors) factors.push_back(format_exact(factor));
    return cat(",\n  attention_factor: ", format_exact(rope.attention_factor), ", short_factors: [",
               join(factors, ", "), "]");
}

/// What most ropes do without.
std::string unusual_rope_text(const RopeSpec& rope) {
    std::string rest;
    if (rope.query_beta != 0.0) rest += cat(", query_beta: ", format_exact(rope.query_beta));
    if (rope.rotated != 1.0) rest += cat(", rotated: ", format_exact(rope.rotated));
    if (rope.interleaved) rest += cat(", interleaved: ", yes_no(true));
    if (rope.type == RopeType::longrope) return longrope_text(rope) + rest;
    if (rope.type != RopeType::yarn) return rest;
    return cat(",\n  beta_fast: ", format_exact(rope.beta_fast),
               ", beta_slow: ", format_exact(rope.beta_slow), ", truncate: ", yes_no(rope.truncate),
               ", attention_factor: ", format_exact(rope.attention_factor), rest);
}

/// What most families do without.
std::string multipliers_text(const ModelSpec& m) {
    const ModelSpec none;
    std::string text;
    const auto add = [&](const char* key, double value, double without) {
        if (value != without) text += cat(", ", key, ": ", format_exact(value));
    };
    add("embedding_multiplier", m.embedding_multiplier, none.embedding_multiplier);
    add("attention_multiplier", m.attention_multiplier, none.attention_multiplier);
    add("residual_multiplier", m.residual_multiplier, none.residual_multiplier);
    add("logits_scaling", m.logits_scaling, none.logits_scaling);
    add("attention_soft_cap", m.attention_soft_cap, none.attention_soft_cap);
    add("logits_soft_cap", m.logits_soft_cap, none.logits_soft_cap);
    return text;
}

/// What is not as in llama.
std::string arithmetic_text(const ModelSpec& m) {
    std::string text;
    if (m.norms != NormPlacement::before) text += cat(", norms: ", word_of(norm_words, m.norms));
    if (m.activation != Activation::silu) {
        text += cat(", activation: ", word_of(activation_words, m.activation));
    }
    const auto add = [&](const char* key, bool value) {
        if (value) text += cat(", ", key, ": ", yes_no(value));
    };
    add("qk_norm_whole", m.qk_norm_whole);
    add("norm_plus_one", m.norm_plus_one);
    add("fused_qkv", m.fused_qkv);
    add("fused_gate_up", m.fused_gate_up);
    if (m.norm_names != NormNames::usual) {
        text += cat(", norm_names: ", word_of(norm_name_words, m.norm_names));
    }
    add("embeds_scaled", m.embeds_scaled);
    if (!m.wrapper.empty()) text += cat(", wrapper: ", in_quotes(m.wrapper));
    return text.empty() ? text : ",\n " + text.substr(1);
}

std::string experts_text(const ModelSpec& m) {
    if (!m.has_experts()) return "";
    return cat(",\n  experts: ", m.experts.count, ", experts_per_token: ", m.experts.per_token,
               ", expert_size: ", m.experts.size,
               ", normalised_experts: ", yes_no(m.experts.normalised));
}

/// What some layers have unlike others.
std::string unlike_layers_text(const ModelSpec& m) {
    std::vector<std::int32_t> without_rope;
    std::vector<std::int32_t> sliding_windows;
    bool has_sliding_windows = false;
    for (std::int64_t i = 0; i < m.layers; ++i) {
        sliding_windows.push_back(static_cast<std::int32_t>(m.layer(i).sliding_window));
        has_sliding_windows = has_sliding_windows || sliding_windows.back() > 0;
        if (!m.layer(i).rope) without_rope.push_back(static_cast<std::int32_t>(i));
    }
    std::string text;
    if (!without_rope.empty()) text += cat(",\n  layers_without_rope: ", numbers(without_rope));
    if (has_sliding_windows) text += cat(",\n  windows: ", numbers(sliding_windows));
    return text;
}

std::string rope_text(const RopeSpec& rope) {
    return cat("{type: ", word_of(rope_words, rope.type), ", theta: ", format_exact(rope.theta),
               ", factor: ", format_exact(rope.factor),
               ", low_freq_factor: ", format_exact(rope.low_freq_factor),
               ",\n  high_freq_factor: ", format_exact(rope.high_freq_factor),
               ", original_max_position: ", rope.original_max_position, unusual_rope_text(rope),
               "}\n");
}

// ---- reading

std::optional<Quantization> read_quantization(const Map& model) {
    if (!model.has("quantization")) return std::nullopt;
    const std::string source = model.text("source_type");
    const auto type = source_type(source);
    if (!type) fail(cat("'", source, "' is not known here"));
    return Quantization{read_format(model.text("quantization")), *type};
}

void read_multipliers(const Map& model, ModelSpec& m) {
    model.read_any("embedding_multiplier", m.embedding_multiplier);
    model.read_any("attention_multiplier", m.attention_multiplier);
    model.read_any("residual_multiplier", m.residual_multiplier);
    model.read_any("logits_scaling", m.logits_scaling);
    model.read_any("attention_soft_cap", m.attention_soft_cap);
    model.read_any("logits_soft_cap", m.logits_soft_cap);
}

void read_arithmetic(const Map& model, ModelSpec& m) {
    if (model.has("norms")) m.norms = parse_word(norm_words, model.text("norms"));
    if (model.has("activation")) {
        m.activation = parse_word(activation_words, model.text("activation"));
    }
    model.read_any("qk_norm_whole", m.qk_norm_whole);
    model.read_any("norm_plus_one", m.norm_plus_one);
    model.read_any("fused_qkv", m.fused_qkv);
    model.read_any("fused_gate_up", m.fused_gate_up);
    if (model.has("norm_names")) {
        m.norm_names = parse_word(norm_name_words, model.text("norm_names"));
    }
    model.read_any("embeds_scaled", m.embeds_scaled);
    model.read_any("wrapper", m.wrapper);
}

void read_experts_of(const Map& model, ModelSpec& m) {
    if (!model.has("experts")) return;
    model.read("experts", m.experts.count);
    model.read("experts_per_token", m.experts.per_token);
    model.read("expert_size", m.experts.size);
    model.read("normalised_experts", m.experts.normalised);
}

RopeSpec read_rope(const Map& rope) {
    RopeSpec spec;
    spec.type = parse_word(rope_words, rope.text("type"));
    rope.read("theta", spec.theta);
    rope.read("factor", spec.factor);
    rope.read("low_freq_factor", spec.low_freq_factor);
    rope.read("high_freq_factor", spec.high_freq_factor);
    rope.read("original_max_position", spec.original_max_position);
    rope.read_any("query_beta", spec.query_beta);
    rope.read_any("rotated", spec.rotated);
    rope.read_any("interleaved", spec.interleaved);
    rope.read_any("attention_factor", spec.attention_factor);
    if (rope.has("short_factors")) {
        spec.short_factors = parse_numbers<double>(rope.at("short_factors"));
    }
    if (spec.type != RopeType::yarn) return spec;
    rope.read("beta_fast", spec.beta_fast);
    rope.read("beta_slow", spec.beta_slow);
    rope.read("truncate", spec.truncate);
    return spec;
}

void read_layers(const Map& model, ModelSpec& m) {
    const auto layers = static_cast<std::size_t>(m.layers);
    std::vector<std::int64_t> without_rope;
    std::vector<std::int64_t> sliding_windows;
    if (model.has("layers_without_rope")) {
        without_rope = parse_numbers<std::int64_t>(model.at("layers_without_rope"));
    }
    if (model.has("windows")) sliding_windows = parse_numbers<std::int64_t>(model.at("windows"));
    if (!sliding_windows.empty() && sliding_windows.size() != layers)
        fail("windows are not one for each layer");
    if (without_rope.empty() && sliding_windows.empty()) return;
    m.layer_specs.resize(layers);
    for (const std::int64_t i : without_rope) {
        if (i < 0 || i >= m.layers) fail(cat("there is no layer ", i));
        m.layer_specs[static_cast<std::size_t>(i)].rope = false;
    }
    for (std::size_t i = 0; i < sliding_windows.size(); ++i)
        m.layer_specs[i].sliding_window = sliding_windows[i];
}

}  // namespace

WeightFormat read_format(const std::string& name) {
    const auto format = weight_format(name);
    if (!format) fail(cat("'", name, "' is not known here"));
    return *format;
}

std::string model_text(const ModelSpec& m) {
    return cat("model: {family: ", in_quotes(m.family), ", vocab_size: ", m.vocab_size,
               ", hidden_size: ", m.hidden_size, ",\n  intermediate_size: ", m.intermediate_size,
               ", layers: ", m.layers, ", heads: ", m.heads, ", kv_heads: ", m.kv_heads,
               ", head_dim: ", m.head_dim, ",\n  rms_norm_eps: ", format_exact(m.rms_norm_eps),
               ", qkv_bias: ", yes_no(m.qkv_bias), ", o_bias: ", yes_no(m.o_bias),
               ", mlp_bias: ", yes_no(m.mlp_bias), ", qk_norm: ", yes_no(m.qk_norm),
               ",\n  tie_word_embeddings: ", yes_no(m.tie_word_embeddings), quantization_text(m),
               multipliers_text(m), arithmetic_text(m), experts_text(m), unlike_layers_text(m),
               "}\nrope: ", rope_text(m.rope),
               m.sliding_rope ? "window_rope: " + rope_text(*m.sliding_rope) : "");
}

ModelSpec read_model(const YAML::Node& root) {
    const YAML::Node model_node = Map(root).at("model");
    const Map model(model_node);
    ModelSpec m;
    model.read("family", m.family);
    model.read("vocab_size", m.vocab_size);
    model.read("hidden_size", m.hidden_size);
    model.read("intermediate_size", m.intermediate_size);
    model.read("layers", m.layers);
    model.read("heads", m.heads);
    model.read("kv_heads", m.kv_heads);
    model.read("head_dim", m.head_dim);
    model.read("rms_norm_eps", m.rms_norm_eps);
    model.read("qkv_bias", m.qkv_bias);
    model.read("o_bias", m.o_bias);
    model.read("mlp_bias", m.mlp_bias);
    model.read("qk_norm", m.qk_norm);
    model.read("tie_word_embeddings", m.tie_word_embeddings);
    m.quantization = read_quantization(model);
    read_multipliers(model, m);
    read_layers(model, m);
    read_arithmetic(model, m);
    read_experts_of(model, m);
    m.rope = read_rope(Map(Map(root).at("rope")));
    if (Map(root).has("window_rope")) m.sliding_rope = read_rope(Map(Map(root).at("window_rope")));
    return m;
}

}  // namespace loratrain::plan_yaml

#pragma once

#include <array>
#include <string>

#include "base/archive.h"
#include "base/error.h"
#include "base/weight_format.h"
#include "config/job_words.h"
#include "config/model_spec.h"

namespace loratrain {

/// Fields of a ModelSpec, for all its forms (base/archive.h). Not in them: what only its file says
/// (ModelSpec::pad_token).

inline constexpr std::array<Word<RopeType>, 5> rope_words{{{"standard", RopeType::standard},
                                                           {"linear", RopeType::linear},
                                                           {"llama3", RopeType::llama3},
                                                           {"yarn", RopeType::yarn},
                                                           {"longrope", RopeType::longrope}}};
inline constexpr std::array<Word<NormPlacement>, 3> norm_words{{{"before", NormPlacement::before},
                                                                {"after", NormPlacement::after},
                                                                {"both", NormPlacement::both}}};
inline constexpr std::array<Word<NormNames>, 4> norm_name_words{{{"usual", NormNames::usual},
                                                                 {"glm4", NormNames::glm4},
                                                                 {"apertus", NormNames::apertus},
                                                                 {"hunyuan", NormNames::hunyuan}}};
inline constexpr std::array<Word<Activation>, 5> activation_words{
    {{"silu", Activation::silu},
     {"gelu_tanh", Activation::gelu_tanh},
     {"xielu", Activation::xielu},
     {"clamped_swiglu", Activation::clamped_swiglu},
     {"relu_squared", Activation::relu_squared}}};
inline constexpr std::array<Word<ExpertNames>, 5> expert_name_words{
    {{"usual", ExpertNames::usual},
     {"mixtral", ExpertNames::mixtral},
     {"glm4_moe", ExpertNames::glm4_moe},
     {"granitemoe", ExpertNames::granitemoe},
     {"gpt_oss", ExpertNames::gpt_oss}}};
inline constexpr std::array<Word<RouterScores>, 2> score_words{
    {{"softmax", RouterScores::softmax}, {"sigmoid", RouterScores::sigmoid}}};
inline constexpr std::array<Word<DeltaLinears>, 2> delta_linear_words{
    {{"by_kind", DeltaLinears::by_kind}, {"by_key_head", DeltaLinears::by_key_head}}};
/// Of Mixer and of Mlp, in their order.
inline constexpr std::array mixer_names{"attention", "delta_net"};
inline constexpr std::array mlp_names{"dense", "experts"};

template <class Archive>
void fields(Archive& archive, RopeSpec& rope) {
    const RopeSpec usual;
    archive.unless("type", worded(rope.type, rope_words), usual.type);
    archive("theta", rope.theta);
    archive.unless("factor", rope.factor, usual.factor);
    archive.unless("low_freq_factor", rope.low_freq_factor, usual.low_freq_factor);
    archive.unless("high_freq_factor", rope.high_freq_factor, usual.high_freq_factor);
    archive.unless("original_max_position", rope.original_max_position,
                   usual.original_max_position);
    archive.unless("beta_fast", rope.beta_fast, usual.beta_fast);
    archive.unless("beta_slow", rope.beta_slow, usual.beta_slow);
    archive.unless("truncate", rope.truncate, usual.truncate);
    archive.unless("attention_factor", rope.attention_factor, usual.attention_factor);
    archive.unless("short_factors", rope.short_factors, usual.short_factors);
    archive.unless("long_factors", rope.long_factors, usual.long_factors);
    archive.unless("rotated", rope.rotated, usual.rotated);
    archive.unless("interleaved", rope.interleaved, usual.interleaved);
    archive.unless("query_beta", rope.query_beta, usual.query_beta);
}

template <class Archive>
void fields(Archive& archive, LatentSpec& latent) {
    archive("q_rank", latent.q_rank);
    archive("kv_rank", latent.kv_rank);
    archive("rope_dim", latent.rope_dim);
    archive("value_dim", latent.value_dim);
}

template <class Archive>
void fields(Archive& archive, AttentionSpec& attention) {
    archive("heads", attention.heads);
    archive("kv_heads", attention.kv_heads);
    archive("head_dim", attention.head_dim);
    archive("rope", attention.rope);
    archive.unless("sliding_window", attention.sliding_window, 0);
    archive.unless("multiplier", attention.multiplier, 0.0);
    archive.unless("soft_cap", attention.soft_cap, 0.0);
    archive.unless("qkv_bias", attention.qkv_bias, false);
    archive.unless("o_bias", attention.o_bias, false);
    archive.unless("qk_norm", attention.qk_norm, false);
    archive.unless("qk_norm_whole", attention.qk_norm_whole, false);
    archive.unless("qk_norm_behind_rope", attention.qk_norm_behind_rope, false);
    archive.unless("fused_qkv", attention.fused_qkv, false);
    archive.unless("output_gate", attention.output_gate, false);
    archive.unless("sinks", attention.sinks, false);
    archive("latent", attention.latent);
}

template <class Archive>
void fields(Archive& archive, DeltaNetSpec& net) {
    archive("key_heads", net.key_heads);
    archive("value_heads", net.value_heads);
    archive("key_dim", net.key_dim);
    archive("value_dim", net.value_dim);
    archive("conv_width", net.conv_width);
    archive.unless("linears", worded(net.linears, delta_linear_words), DeltaLinears::by_kind);
}

template <class Archive>
void fields(Archive& archive, DenseSpec& mlp) {
    archive("size", mlp.size);
    archive.unless("activation", worded(mlp.activation, activation_words), Activation::silu);
    archive.unless("bias", mlp.bias, false);
    archive.unless("fused_gate_up", mlp.fused_gate_up, false);
}

template <class Archive>
void fields(Archive& archive, ExpertSpec& experts) {
    archive("count", experts.count);
    archive("per_token", experts.per_token);
    archive("size", experts.size);
    archive.unless("normalised", experts.normalised, false);
    archive.unless("activation", worded(experts.activation, activation_words), Activation::silu);
    archive.unless("names", worded(experts.names, expert_name_words), ExpertNames::usual);
    archive.unless("scores", worded(experts.scores, score_words), RouterScores::softmax);
    archive.unless("biased_choice", experts.biased_choice, false);
    archive.unless("groups", experts.groups, 1);
    archive.unless("used_groups", experts.used_groups, 1);
    archive.unless("scale", experts.scale, 1.0);
    archive.unless("shared_size", experts.shared_size, 0);
    archive.unless("shared_gate", experts.shared_gate, false);
    archive.unless("router_bias", experts.router_bias, false);
    archive.unless("bias", experts.bias, false);
    archive.unless("cut", worded(experts.cut, expert_cut_words), ExpertCut::columns);
}

template <class Archive>
void fields(Archive& archive, Norms& norms) {
    archive.unless("placement", worded(norms.placement, norm_words), NormPlacement::before);
    archive.unless("names", worded(norms.names, norm_name_words), NormNames::usual);
}

template <class Archive>
void fields(Archive& archive, LayerSpec& layer) {
    archive.kind("mixer", layer.mixer, mixer_names);
    archive.kind("mlp", layer.mlp, mlp_names);
    archive.unless("norms", layer.norms, Norms{});
}

/// By their names in weight_formats and source_types.
template <class E, std::size_t size, class Name>
constexpr std::array<Word<E>, size> words_in_order(const Name& name) {
    std::array<Word<E>, size> words{};
    for (std::size_t i = 0; i < size; ++i) {
        words[i] = {name(i), static_cast<E>(i)};
    }
    return words;
}
inline constexpr auto format_words = words_in_order<WeightFormat, weight_formats.size()>(
    [](std::size_t i) { return weight_formats[i].name.data(); });
inline constexpr auto source_words = words_in_order<SourceType, source_types.size()>(
    [](std::size_t i) { return source_types[i].data(); });

template <class Archive>
void fields(Archive& archive, Quantization& quantization) {
    archive("format", worded(quantization.format, format_words));
    archive("source", worded(quantization.source, source_words));
}

template <class Archive>
void fields(Archive& archive, ModelSpec& model) {
    const ModelSpec usual;
    archive("family", model.family);
    archive.unless("wrapper", model.wrapper, usual.wrapper);
    archive("vocab_size", model.vocab_size);
    archive("hidden_size", model.hidden_size);
    archive("layers", at_least(1, model.layers));
    archive("descriptions", model.descriptions);
    archive.unless("description_of", model.description_of, usual.description_of);
    archive("rms_norm_eps", model.rms_norm_eps);
    archive.unless("norm_plus_one", model.norm_plus_one, false);
    archive.unless("tie_word_embeddings", model.tie_word_embeddings, false);
    archive.unless("embedding_multiplier", model.embedding_multiplier, 1.0);
    archive.unless("residual_multiplier", model.residual_multiplier, 1.0);
    archive.unless("logits_scaling", model.logits_scaling, 1.0);
    archive.unless("embeds_scaled", model.embeds_scaled, false);
    archive.unless("logits_soft_cap", model.logits_soft_cap, 0.0);
    archive("quantization", model.quantization);
    if constexpr (Archive::reads) {
        if (const char* problem = description_problem(model)) throw Error(problem);
    }
}

}  // namespace loratrain

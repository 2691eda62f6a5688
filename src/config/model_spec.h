#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/activation.h"
#include "base/weight_format.h"

namespace loratrain {

/// How rotary frequencies are made (names of HF `rope_type`). inv_freq_j = theta^(-2j/D), then
///   linear: inv_freq / factor
///   llama3, yarn: wavelength-dependent interpolation, see model/rope_frequencies.h
///   longrope: inv_freq_j / short_factors[j] (Ding et al. 2024, "LongRoPE"), for samples of at most
///   original_max_position tokens
enum class RopeType : std::uint8_t { standard, linear, llama3, yarn, longrope };

struct RopeSpec {
    RopeType type = RopeType::standard;
    double theta = 10000.0;
    double factor = 1.0;
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    std::int64_t original_max_position = 8192;
    // Of yarn alone (Peng et al. 2023, "YaRN: Efficient Context Window Extension").
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    bool truncate = true;
    double attention_factor = 1.0;        ///< what is rotated of q and k is so much longer
    std::vector<double> short_factors{};  ///< of longrope, one for each pair
    double rotated = 1.0;      ///< share of a head that is rotated, from its first column on
    bool interleaved = false;  ///< pairs are neighbours, not columns of two halves (glm4)
    /// Rotated q times 1 + beta ln(1 + floor(position / original_max_position)); 0: not.
    double query_beta = 0.0;
    friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

/// What a decoder layer may have unlike others of its model.
struct LayerSpec {
    /// q and k are rotated by positions. Without: NoPE (Kazemnejad et al. 2023, "The Impact of
    /// Positional Encoding on Length Generalization in Transformers").
    bool rope = true;
    std::int64_t sliding_window =
        0;  ///< a token sees the last so many, itself included; 0: all before
    friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

/// The MLP of every layer as a mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural
/// Networks"; Qwen3-MoE): with p = softmax of the router's logits of a token, which the gate
/// [count, H] makes of h, and its per_token largest
///   MLP(h) = sum over these of w_e expert_e(h),  w_e = p_e, with `normalised` divided by their sum
/// where experts are gated MLPs of `size` columns. Gradients go through w too; the router is
/// frozen.
struct ExpertSpec {
    std::int64_t count = 0;  ///< 0: a dense MLP of intermediate_size
    std::int64_t per_token = 0;
    std::int64_t size = 0;
    bool normalised = false;
    friend bool operator==(const ExpertSpec&, const ExpertSpec&) = default;
};

/// Which norms a decoder layer has: before the attention and the MLP (llama), of what they add to
/// the residual stream (olmo2), or both (gemma2).
enum class NormPlacement : std::uint8_t { before, after, both };

/// What the norms of a layer are called.
enum class NormNames : std::uint8_t { usual, glm4, apertus };

/// Dimensions of the frozen decoder-only transformer (Llama family). Read from the HF config.json
/// that is kept in the weights file. With multipliers e, r, a and l as granite has them
///   x = e embedding;  x += r attention(norm x), x += r mlp(norm x) per layer;  logits = head / l
/// where scores are a q k, and a = 1/sqrt(D) where attention_multiplier is 0. What attention_factor
/// makes q and k longer by is in a as well.
struct ModelSpec {
    std::string
        family;  ///< HF model_type: llama, mistral, ..., gemma3_text (io/weights/hf_config.h)
    /// HF model_type of the config that this one's is text_config of: gemma3, mistral3; else empty.
    std::string wrapper{};
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    double rms_norm_eps = 1e-6;
    RopeSpec rope;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;
    bool qk_norm = false;        ///< RMSNorm over head_dim on q and k, before RoPE (qwen3)
    bool qk_norm_whole = false;  ///< with qk_norm: over all heads together instead (olmo2)
    NormPlacement norms = NormPlacement::before;
    NormNames norm_names = NormNames::usual;
    bool norm_plus_one = false;  ///< norms multiply by 1 + weight (gemma2)
    /// One linear makes q, k and v, one makes gate and up, in this order (phi3): LoRA on it has one
    /// A for all of them.
    bool fused_qkv = false;
    bool fused_gate_up = false;
    Activation activation = Activation::silu;
    ExpertSpec experts{};
    bool tie_word_embeddings = false;  ///< the head is the embedding matrix
    /// Of the file, nothing else says it: a token whose embedding is not trained (torch's
    /// padding_idx).
    std::int64_t pad_token = -1;  ///< -1: none
    double embedding_multiplier = 1.0;
    double attention_multiplier = 0.0;
    double residual_multiplier = 1.0;
    double logits_scaling = 1.0;
    /// The embedding module itself multiplies: with embedding_multiplier in the type of weights,
    /// and before noise is added (gemma2).
    bool embeds_scaled = false;
    double attention_soft_cap = 0.0;  ///< scores s are c tanh(s / c); 0: they are not
    double logits_soft_cap = 0.0;
    std::optional<RopeSpec> sliding_rope{};  ///< of layers with a sliding window, where not `rope`
    std::vector<LayerSpec> layer_specs{};    ///< of every layer; empty: all as LayerSpec{}
    /// Of the linears of the layers, in its file and on a backend; none: dense as all the rest.
    std::optional<Quantization> quantization{};

    std::int64_t q_size() const { return heads * head_dim; }
    std::int64_t kv_size() const { return kv_heads * head_dim; }
    LayerSpec layer(std::int64_t i) const {
        return layer_specs.empty() ? LayerSpec{} : layer_specs[static_cast<std::size_t>(i)];
    }

    // The residual stream is kept as z = x / r: z = (e / r) embedding, z += attention(norm x), and
    // norm x with eps is the norm of z with eps / r^2, so that r costs nothing in any layer.
    double embedding_scale() const { return embedding_multiplier / residual_multiplier; }
    double stream_eps() const { return rms_norm_eps / (residual_multiplier * residual_multiplier); }
    double attention_scale(const LayerSpec& layer) const;  ///< a

    const RopeSpec& rope_of(const LayerSpec& layer) const {
        return layer.sliding_window > 0 && sliding_rope ? *sliding_rope : rope;
    }
    /// The MLP has one: else up alone goes through the activation.
    bool has_gate() const { return activation != Activation::xielu; }
    /// Then no linear of has_linear() is in the MLP.
    bool has_experts() const { return experts.count > 0; }
    bool has_norms_before() const { return norms != NormPlacement::after; }
    bool has_norms_after() const { return norms != NormPlacement::before; }
    /// Columns of a head that are rotated.
    std::int64_t rotary_dim(const RopeSpec& of) const {
        return static_cast<std::int64_t>(static_cast<double>(head_dim) * of.rotated);
    }
    std::int64_t q_norm_size() const { return qk_norm_whole ? q_size() : head_dim; }
    std::int64_t k_norm_size() const { return qk_norm_whole ? kv_size() : head_dim; }
};

/// The linears that a decoder layer may have (has_linear), in this order everywhere; the output
/// head, which counts as the linear of a layer behind the last one, and the embedding, as that of a
/// layer -1 before the first: its in-features are the vocabulary.
enum class Linear : std::uint8_t { q, k, v, o, gate, up, down, qkv, gate_up, head, embedding };
inline constexpr int linear_count = 9;  ///< of layers
/// One flag for each.
constexpr std::array<bool, linear_count> all_linears() {
    std::array<bool, linear_count> all{};
    all.fill(true);
    return all;
}
inline constexpr std::array<Linear, 2> outer_linears{Linear::head, Linear::embedding};

/// Linears of a layer that read the same input.
enum class LinearGroup : std::uint8_t { qkv, o, gate_up, down };
inline constexpr int linear_group_count = 4;
inline constexpr std::int32_t embedding_layer = -1;
std::int64_t outer_layer(const ModelSpec& spec, Linear linear);

/// PEFT name of a linear: "q_proj" ... "gate_up_proj", "lm_head", "embed_tokens".
const char* module_name(Linear linear);
/// Its module in Hugging Face's models, also its key for random numbers:
/// "model.layers.3.self_attn.q_proj", "lm_head", "model.embed_tokens".
std::string module_path(std::int64_t layer, Linear linear);
/// That of an expert's: "model.layers.3.mlp.experts.17.gate_proj"; as above where there is none.
inline constexpr std::int32_t no_expert = -1;
std::string module_path(std::int64_t layer, Linear linear, std::int32_t expert);

/// In- and out-features of a linear; 0 of one that the model's layers do not have.
struct LinearShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
};
LinearShape linear_shape(const ModelSpec& spec, Linear linear);
bool has_linear(const ModelSpec& spec, Linear linear);
/// Names of those that the layers have.
std::vector<std::string> linear_names(const ModelSpec& spec);
/// And of those in experts.
std::vector<std::string> target_names(const ModelSpec& spec);
bool has_bias(const ModelSpec& spec, Linear linear);

/// gate, up or down of a model with experts, which has one in each of them.
bool is_in_experts(const ModelSpec& spec, Linear linear);
/// What LoRA may be on: has_linear() and is_in_experts(), with the shape of one.
bool has_target(const ModelSpec& spec, Linear linear);
LinearShape target_shape(const ModelSpec& spec, Linear linear);
/// Of each layer, linears of that name that LoRA is on: those of the experts from 0 on, or the one
/// of no_expert.
struct TargetExperts {
    std::int32_t first = no_expert;
    std::int32_t count = 1;
};
TargetExperts target_experts(const ModelSpec& spec, Linear linear);

/// Parameters in matrix products per token: all linears and the head, without the embedding; of
/// experts those that a token goes to, and the router.
std::int64_t matmul_parameters(const ModelSpec& spec);
/// The same with all experts: what is held.
std::int64_t held_parameters(const ModelSpec& spec);
/// What a layer has of them: its linears, its router and `experts` experts.
std::int64_t layer_parameters(const ModelSpec& spec, std::int64_t experts);

}  // namespace loratrain

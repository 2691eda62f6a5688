#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/operators.h"

namespace loratrain {

/// What a decoder layer is made of: a mixer of tokens and an MLP, each of one of several kinds, and
/// norms around both. A kind is a struct here, with rows in config/linears.cpp for its linears and
/// in config/layer_tensors.cpp for its other tensors.

/// Numbers of rows or columns of up to three parts that lie one behind another: of q, k and v.
using PartSizes = std::array<std::int64_t, 3>;

/// How rotary frequencies are made (names of HF `rope_type`). inv_freq_j = theta^(-2j/D), then
///   linear: inv_freq / factor
///   llama3, yarn: wavelength-dependent interpolation, see model/rope_frequencies.h
///   longrope: inv_freq_j / short_factors[j] in samples of at most original_max_position tokens,
///   inv_freq_j / long_factors[j] in longer ones (Ding et al. 2024, "LongRoPE")
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
    double attention_factor = 1.0;  ///< what is rotated of q and k is so much longer
    // Of longrope, one for each pair.
    std::vector<double> short_factors{};
    std::vector<double> long_factors{};
    double rotated = 1.0;      ///< share of a head that is rotated, from its first column on
    bool interleaved = false;  ///< pairs are neighbours, not columns of two halves (glm4)
    /// Rotated q times 1 + beta ln(1 + floor(position / original_max_position)); 0: not.
    double query_beta = 0.0;
    friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

/// Latent attention (DeepSeek-AI 2024, "DeepSeek-V2"): keys and values of all heads are made of one
/// row of kv_rank columns, c, and queries of one of q_rank columns:
///   [c, r] = kv_a h;  [n, v] of each head = kv_b norm(c);  its key is [n, rope(r)]
///   [n', r'] of each head = q_b norm(q_a h), or q h where q_rank is 0;  its query is [n',
///   rope(r')]
/// A head of keys and queries has head_dim columns, and values have value_dim.
struct LatentSpec {
    std::int64_t q_rank = 0;
    std::int64_t kv_rank = 0;
    std::int64_t rope_dim = 0;   ///< columns of r, which all heads share; RopeSpec::rotated of D
    std::int64_t value_dim = 0;  ///< at most head_dim
    friend bool operator==(const LatentSpec&, const LatentSpec&) = default;
};
/// Of the norms of latent rows, whatever ModelSpec::rms_norm_eps: transformers' classes have it so.
inline constexpr double latent_norm_eps = 1e-6;

/// Softmax attention, with grouped queries (Ainslie et al. 2023, "GQA"):
///   scores = a q k,  a = multiplier, or 1/sqrt(D) where that is 0
struct AttentionSpec {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;  ///< D
    /// How q and k are rotated by positions. None: NoPE (Kazemnejad et al. 2023, "The Impact of
    /// Positional Encoding on Length Generalization in Transformers").
    std::optional<RopeSpec> rope = RopeSpec{};
    /// A token sees the last so many, itself included; 0: all before.
    std::int64_t sliding_window = 0;
    double multiplier = 0.0;
    double soft_cap = 0.0;  ///< scores s are c tanh(s / c); 0: they are not
    bool qkv_bias = false;
    bool o_bias = false;
    bool qk_norm = false;              ///< RMSNorm over head_dim on q and k, before RoPE (qwen3)
    bool qk_norm_whole = false;        ///< with qk_norm: over all heads together instead (olmo2)
    bool qk_norm_behind_rope = false;  ///< with qk_norm: of what RoPE has rotated (hunyuan)
    /// One linear makes q, k and v, in this order (phi3): LoRA on it has one A for all of them.
    bool fused_qkv = false;
    /// What attention makes is multiplied by sigmoid(gate) before o (Qwen3-Next). The linear q
    /// makes, head by head, the query and the gate behind it.
    bool output_gate = false;
    /// A learned logit for each head takes its share of every softmax, and has no value (gpt_oss).
    bool sinks = false;
    /// q, k and v come from latent rows; as many key-value heads as heads. None: from h.
    std::optional<LatentSpec> latent{};

    std::int64_t q_size() const { return heads * head_dim; }
    std::int64_t q_outputs() const { return output_gate ? 2 * q_size() : q_size(); }
    std::int64_t kv_size() const { return kv_heads * head_dim; }
    /// Columns that o reads.
    std::int64_t o_inputs() const { return latent ? heads * latent->value_dim : q_size(); }
    /// Of a head with a latent: columns that are not rotated, which lie before the others.
    std::int64_t nope_dim() const { return head_dim - latent->rope_dim; }
    PartSizes qkv_parts() const { return {q_size(), kv_size(), kv_size()}; }
    std::int64_t q_norm_size() const { return qk_norm_whole ? q_size() : head_dim; }
    std::int64_t k_norm_size() const { return qk_norm_whole ? kv_size() : head_dim; }
    /// q, k and v go side by side, as their linears make them, to where rope rotates them: one
    /// product can make all three.
    bool has_joinable_outputs() const { return !qk_norm && !output_gate && !latent; }
    /// a. What rope's attention_factor makes q and k longer by is in it as well.
    double scale() const;
    friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

/// Columns of a head that are rotated.
std::int64_t rotary_dim(std::int64_t head_dim, const RopeSpec& rope);
/// Frequencies of a head: one for each rotated pair, and of longrope one more for long samples.
std::int64_t frequency_count(std::int64_t head_dim, const RopeSpec& rope);

/// Which linears make q, k, v, z, b and a of a gated delta net.
enum class DeltaLinears : std::uint8_t {
    by_kind,      ///< [q k v], z, b, a (qwen3_5)
    by_key_head,  ///< [q k v z] and [b a], of one key head after another (qwen3_next)
};

/// A gated delta net (Yang et al. 2025, "Gated Delta Networks: Improving Mamba2 with Delta Rule"):
///   mixer(h) = out(norm(delta rule(conv(q), conv(k), conv(v))) silu(z))
/// with formulas in backend/ops/delta_net.h. q and k have key_heads of key_dim columns, v and z
/// value_heads of value_dim, and b and a a number for each value head.
struct DeltaNetSpec {
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0;  ///< a multiple of key_heads
    std::int64_t key_dim = 0;
    std::int64_t value_dim = 0;
    std::int64_t conv_width = 4;
    DeltaLinears linears = DeltaLinears::by_kind;

    std::int64_t key_size() const { return key_heads * key_dim; }
    std::int64_t value_size() const { return value_heads * value_dim; }
    /// Columns of q, k and v, which are convolved.
    std::int64_t conv_size() const { return 2 * key_size() + value_size(); }
    PartSizes conv_parts() const { return {key_size(), key_size(), value_size()}; }
    std::int64_t state_size() const { return value_heads * key_dim * value_dim; }
    bool are_by_kind() const { return linears == DeltaLinears::by_kind; }
    friend bool operator==(const DeltaNetSpec&, const DeltaNetSpec&) = default;
};

/// down(activation(gate x) * up x), or of Activation::xielu and relu_squared, which have no gate,
/// down(activation(up x)).
struct DenseSpec {
    std::int64_t size = 0;  ///< F: columns of gate and up
    Activation activation = Activation::silu;
    bool bias = false;
    /// One linear makes gate and up, in this order (phi3): LoRA on it has one A for both.
    bool fused_gate_up = false;

    PartSizes gate_up_parts() const { return {size, size}; }
    bool has_gate() const {
        return activation != Activation::xielu && activation != Activation::relu_squared;
    }
    friend bool operator==(const DenseSpec&, const DenseSpec&) = default;
};

/// What files of Hugging Face call a layer's experts (io/tensor_names.h).
enum class ExpertNames : std::uint8_t { usual, mixtral, glm4_moe, granitemoe, gpt_oss };
/// Whether files have each kind of matrix of all experts of a layer in one tensor
/// (io/weights/packed_experts.h).
constexpr bool packs_experts(ExpertNames names) {
    return names == ExpertNames::granitemoe || names == ExpertNames::gpt_oss;
}

/// How lanes of a stage share the experts of a layer (plan/tensor_shard.h): each has a part of the
/// columns of every expert, or whole ones.
enum class ExpertCut : std::uint8_t { columns, whole };

/// A mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural Networks"; Qwen3-MoE):
/// with p = scores of the router's logits of a token, which the gate [count, H] makes of h, and
/// per_token experts with the largest p, or p + bias, in the groups that are used (Route)
///   MLP(h) = sum over these of w_e expert_e(h) + g shared(h)
///   w_e = scale p_e, with `normalised` divided by their sum;  g = 1, or sigmoid(gate_of_shared h)
/// where experts are gated MLPs of `size` columns, and the shared one, which all tokens pass, of
/// shared_size. Gradients go through w and g too; router and gates are frozen.
struct ExpertSpec {
    std::int64_t count = 0;
    std::int64_t per_token = 0;
    std::int64_t size = 0;
    bool normalised = false;
    Activation activation = Activation::silu;
    ExpertNames names = ExpertNames::usual;
    RouterScores scores = RouterScores::softmax;
    bool biased_choice = false;
    std::int64_t groups = 1;
    std::int64_t used_groups = 1;
    double scale = 1.0;
    std::int64_t shared_size = 0;  ///< 0: no shared expert
    bool shared_gate = false;
    bool router_bias = false;  ///< added to the logits themselves
    bool bias = false;         ///< of each expert's gate, up and down
    // The job says it, not the model's file:
    ExpertCut cut = ExpertCut::columns;
    std::int64_t lanes = 1;  ///< of a lane's layer: so many share the experts

    bool has_shared() const { return shared_size > 0; }
    /// Most that a lane has.
    std::int64_t held() const { return (count + lanes - 1) / lanes; }
    friend bool operator==(const ExpertSpec&, const ExpertSpec&) = default;
};

/// Which norms a decoder layer has: before the attention and the MLP (llama), of what they add to
/// the residual stream (olmo2), or both (gemma2).
enum class NormPlacement : std::uint8_t { before, after, both };

/// What the norms of a layer are called.
enum class NormNames : std::uint8_t { usual, glm4, apertus, hunyuan };

struct Norms {
    NormPlacement placement = NormPlacement::before;
    NormNames names = NormNames::usual;

    bool has_before() const { return placement != NormPlacement::after; }
    bool has_after() const { return placement != NormPlacement::before; }
    friend bool operator==(const Norms&, const Norms&) = default;
};

using Mixer = std::variant<AttentionSpec, DeltaNetSpec>;
using Mlp = std::variant<DenseSpec, ExpertSpec>;

struct LayerSpec {
    Mixer mixer;
    Mlp mlp;
    Norms norms;

    /// Of a layer that has it.
    AttentionSpec& attention() { return std::get<AttentionSpec>(mixer); }
    const AttentionSpec& attention() const { return std::get<AttentionSpec>(mixer); }
    /// Null: it has another mixer.
    const AttentionSpec* if_attention() const { return std::get_if<AttentionSpec>(&mixer); }
    const DeltaNetSpec* delta_net() const { return std::get_if<DeltaNetSpec>(&mixer); }
    DenseSpec& dense() { return std::get<DenseSpec>(mlp); }
    const DenseSpec& dense() const { return std::get<DenseSpec>(mlp); }
    /// Null: it has another MLP.
    const ExpertSpec* experts() const { return std::get_if<ExpertSpec>(&mlp); }
    friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

/// The MLP's activation has weights of its own in each layer (Activation::xielu).
inline bool has_activation_weights(const LayerSpec& layer) {
    const auto* mlp = std::get_if<DenseSpec>(&layer.mlp);
    return mlp != nullptr && mlp->activation == Activation::xielu;
}

}  // namespace loratrain

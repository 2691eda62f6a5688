#pragma once

#include <cstdint>

namespace loratrain {

/// What configurations, plans and backends agree on about operators: activations of an MLP, limits
/// of experts, chunks of delta nets, and what lanes exchange about a row of logits.

/// Activation of an MLP's gate (names of HF hidden_act).
///   silu: x / (1 + e^-x)
///   gelu_tanh ("gelu_pytorch_tanh"): x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
///     (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units"; Shazeer 2020 as GeGLU)
///   clamped_swiglu (gpt_oss): of gate g and up u with c = swiglu_limit, not f(g) u but
///     (clamp(u, -c, c) + 1) m / (1 + e^-(swiglu_alpha m)),  m = min(g, c)
///   sigmoid: 1 / (1 + e^-x); of an attention's output gate, not of MLPs
///   xielu: for an MLP without a gate; applied to up, with two weights per layer
///     (backend/ops/elementwise.h, Xielu)
///   relu_squared ("relu2"): max(x, 0)², for an MLP without a gate; applied to up
enum class Activation : std::uint8_t {
    silu,
    gelu_tanh,
    xielu,
    sigmoid,
    clamped_swiglu,
    relu_squared
};
inline constexpr float swiglu_limit = 7.0F;
inline constexpr float swiglu_alpha = 1.702F;

/// What a router makes of its logits l over the experts: softmax(l), or 1 / (1 + e^-l) of each.
enum class RouterScores : std::uint8_t { softmax, sigmoid };
/// Added to the sum of the scores that a normalised sigmoid router divides by.
inline constexpr float least_score_sum = 1e-20F;

/// Limits of kernels: most experts of a router, most experts per row, and most groups of experts.
inline constexpr std::int64_t most_experts = 1024;
inline constexpr std::int64_t most_experts_per_token = 32;
inline constexpr std::int64_t most_expert_groups = 32;

/// Gated delta nets: the widest convolution, rows of a chunk, and the number that is added to the
/// sum of squares of a vector before its length is computed.
inline constexpr std::int64_t most_conv_width = 8;
inline constexpr std::int64_t delta_chunk = 64;
inline constexpr float delta_length_eps = 1e-6F;
/// Most states that are kept for `tokens` rows (DeltaRule).
constexpr std::int64_t delta_states(std::int64_t tokens) {
    return tokens > 0 ? (tokens - 1) / delta_chunk : 0;
}

/// What one lane knows of a row of logits from its own columns.
struct ShardStatistics {
    double largest = 0.0;  ///< logit
    double sum = 0.0;      ///< of exp(logit - largest)
    double target = 0.0;   ///< the target's logit if the target is among this lane's columns
    /// Of the target: 0 = among other lanes' columns; 1 = among this lane's columns, and the
    /// largest of them; -1 = among this lane's columns, and not the largest.
    double standing = 0.0;
    /// Sum of the logits if the loss is smoothed; for their entropy sum of
    /// exp(logit - largest) (logit - largest); else 0.
    double logits = 0.0;
};

}  // namespace loratrain

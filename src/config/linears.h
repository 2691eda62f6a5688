#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/layer_spec.h"

namespace loratrain {

struct ModelSpec;

/// The linears of a model: what LoRA may be on. config/linears.cpp has one row for each linear of a
/// kind of mixer or MLP.

/// The linears that a decoder layer may have (has_linear), in this order everywhere; the output
/// head, which counts as the linear of a layer behind the last one, and the embedding, as that of a
/// layer -1 before the first: its in-features are the vocabulary.
enum class Linear : std::uint8_t {
    q,
    k,
    v,
    o,
    gate,
    up,
    down,
    qkv,
    gate_up,
    shared_gate,
    shared_up,
    shared_down,
    delta_qkv,
    delta_z,
    delta_b,
    delta_a,
    delta_qkvz,
    delta_ba,
    delta_out,
    latent_q_a,
    latent_kv_a,
    latent_q_b,
    latent_kv_b,
    head,
    embedding
};
inline constexpr int linear_count = 23;  ///< of layers
/// One flag for each.
constexpr std::array<bool, linear_count> all_linears() {
    std::array<bool, linear_count> all{};
    all.fill(true);
    return all;
}
inline constexpr std::array<Linear, 2> outer_linears{Linear::head, Linear::embedding};
constexpr bool is_outer(Linear linear) {
    return linear == Linear::head || linear == Linear::embedding;
}

/// Linears of a layer that read the same input.
enum class LinearGroup : std::uint8_t {
    qkv,
    o,
    gate_up,
    down,
    shared_gate_up,
    shared_down,
    delta_in,
    delta_out,
    latent_q,
    latent_kv
};
inline constexpr std::array linear_groups{LinearGroup::qkv,
                                          LinearGroup::o,
                                          LinearGroup::gate_up,
                                          LinearGroup::down,
                                          LinearGroup::shared_gate_up,
                                          LinearGroup::shared_down,
                                          LinearGroup::delta_in,
                                          LinearGroup::delta_out,
                                          LinearGroup::latent_q,
                                          LinearGroup::latent_kv};
inline constexpr std::size_t linear_group_count = linear_groups.size();
inline constexpr std::size_t most_group_linears = 4;  ///< of one group
inline constexpr std::int32_t embedding_layer = -1;
std::int64_t outer_layer(const ModelSpec& spec, Linear linear);

/// PEFT name of a linear: "q_proj" ... "gate_up_proj", "lm_head", "embed_tokens". Those of a shared
/// expert are called as others of MLPs.
const char* module_name(Linear linear);
/// Its module in Hugging Face's models, also its key for random numbers:
/// "model.layers.3.self_attn.q_proj", "lm_head", "model.embed_tokens".
std::string module_path(std::int64_t layer, Linear linear);
/// That of an expert's: "model.layers.3.mlp.experts.17.gate_proj"; as above where there is none.
inline constexpr std::int32_t no_expert = -1;
std::string module_path(std::int64_t layer, Linear linear, std::int32_t expert);

/// Which linear has this module_path(), in any layer and expert; nothing: none has.
std::optional<Linear> linear_of_module(std::string_view path);

/// How tensor lanes share W [out, in] of a linear (plan/tensor_shard.h): the rows of each of its
/// parts evenly, its rows by key-value heads, of which several lanes may have the same, or its
/// columns.
enum class LaneCut : std::uint8_t { rows, key_value_heads, columns };
LaneCut lane_cut(Linear linear);
/// Of a layer's.
LinearGroup linear_group(Linear linear);

/// In- and out-features of a linear; 0 of one that is not there.
struct LinearShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
};

/// Of a layer, linears of one name: those of the experts from 0 on, or the one of no_expert.
struct TargetExperts {
    std::int32_t first = no_expert;
    std::int32_t count = 1;
};

/// The linears of one name in a layer, each of one shape.
struct LayerLinear {
    bool is_there = false;
    LinearShape shape{};
    bool bias = false;
    TargetExperts experts{};
    PartSizes parts{};  ///< of the out-features, one behind another; zeros: they are one part

    bool is_in_experts() const { return experts.first != no_expert; }
};
LayerLinear linear_of(const LayerSpec& layer, std::int64_t hidden_size, Linear linear);

/// The layer has it outside of experts.
bool has_linear(const LayerSpec& layer, Linear linear);

// Of a model. Layers that have a linear have it alike (config/model_limits.h).

/// All but those in experts. Some layer has it; what and of which shape it is there.
bool has_linear(const ModelSpec& spec, Linear linear);
LayerLinear linear_of(const ModelSpec& spec, Linear linear);
LinearShape linear_shape(const ModelSpec& spec, Linear linear);
/// What PEFT's target_modules call it: module_name(), or "mlp.gate_proj" where the model has two
/// linears of that name.
std::string target_name(const ModelSpec& spec, Linear linear);
/// Names of those that the layers have, each once.
std::vector<std::string> linear_names(const ModelSpec& spec);
/// linear_names() and the linears in experts.
std::vector<std::string> target_names(const ModelSpec& spec);
bool has_bias(const ModelSpec& spec, Linear linear);

/// gate, up or down of a model with experts, where some layer has one in each of them.
bool is_in_experts(const ModelSpec& spec, Linear linear);
/// A linear of MLPs outside of experts, in a model with experts. PEFT takes its name for that of
/// linears in experts, and has LoRA on it as a parameter ("model.layers.0.mlp.up_proj.weight").
bool is_beside_experts(const ModelSpec& spec, Linear linear);
/// What LoRA may be on: has_linear() and is_in_experts().
bool has_target(const ModelSpec& spec, Linear linear);
/// What LoRA is on in a layer; of an outer linear whatever the layer. A layer behind the last is
/// like the last: rules of names are compared in more layers than a model has.
LayerLinear target_of(const ModelSpec& spec, std::int64_t layer, Linear linear);

/// Parameters in matrix products per token: all linears and the head, without the embedding; of
/// experts those that a token goes to, and the router.
std::int64_t matmul_parameters(const ModelSpec& spec);
/// The same with all experts: what is held.
std::int64_t held_parameters(const ModelSpec& spec);
/// What a layer has of the former.
std::int64_t matmul_parameters(const LayerSpec& layer, std::int64_t hidden_size);

}  // namespace loratrain

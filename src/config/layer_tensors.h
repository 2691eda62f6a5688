#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/linears.h"

namespace loratrain {

/// The frozen tensors of a layer beside its linears and their biases: norms, a router, a
/// convolution, weights of an activation. config/layer_tensors.cpp has one row for each, which
/// files, memory and loading take them from.

enum class LayerTensor : std::uint8_t {
    norm_before_mixer,
    q_norm,
    k_norm,
    sinks,
    latent_q_norm,
    latent_kv_norm,
    delta_conv,
    delta_a_log,
    delta_dt_bias,
    delta_norm,
    norm_after_mixer,
    norm_before_mlp,
    router,
    router_bias,
    router_logit_bias,
    experts_gate_up_bias,
    experts_down_bias,
    shared_gate,
    xielu_positive,
    xielu_negative,
    norm_after_mlp,
};
inline constexpr int layer_tensor_count = 21;

/// [columns], or with rows [rows, columns]. Without columns the layer does not have the tensor.
struct LayerTensorShape {
    std::int64_t columns = 0;
    std::int64_t rows = 0;
    PartSizes parts{};  ///< of the rows, of each of which lanes have a share; zeros: they have all
    std::int64_t column_parts = 1;  ///< equal ones, of each of which lanes have a share

    std::int64_t elements() const { return columns * (rows > 0 ? rows : 1); }
};
/// A lane's layer has the lane's part: an even share of the columns of each of the model's
/// column_parts or all of them, of the rows what `parts` says (plan/tensor_shard.h).
LayerTensorShape layer_tensor_shape(const LayerSpec& layer, std::int64_t hidden_size,
                                    LayerTensor tensor);

/// "model.layers.3.input_layernorm.weight": Hugging Face's, as LayerSpec::norms say.
/// post_attention_layernorm is the norm before the MLP in families that have none behind the
/// attention, and in glm4.
std::string layer_tensor_name(std::int64_t layer, LayerTensor tensor, const LayerSpec& spec);

/// One number, which the host has in fp32. All others are in memory of the backend, in the compute
/// type, or as is_f32() says in fp32.
bool is_on_host(LayerTensor tensor);
bool is_f32(LayerTensor tensor);
/// It is added to what lanes sum: the first lane alone has more than zeros.
bool is_of_first_lane(LayerTensor tensor);

/// Files have it in front of the linears of this group; none: behind all linears.
std::optional<LinearGroup> group_behind(LayerTensor tensor);

}  // namespace loratrain

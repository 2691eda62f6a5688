#include "config/layer_tensors.h"

#include <array>

#include "base/text.h"

namespace loratrain {

namespace {

using RowShape = LayerTensorShape;
using Layer = const LayerSpec&;
using Hidden = std::int64_t;

struct TensorRow {
    LayerTensor tensor;
    std::optional<LinearGroup> behind_it;
    const char* (*name)(Layer layer);
    RowShape (*shape)(Layer layer, Hidden hidden);
    bool is_on_host = false;
    bool is_f32 = false;
    bool is_of_first_lane = false;
};

bool has_names(Layer layer, NormNames names) {
    return layer.norms.names == names;
}

RowShape before(Layer layer, Hidden hidden) {
    return {layer.norms.has_before() ? hidden : 0};
}

RowShape after(Layer layer, Hidden hidden) {
    return {layer.norms.has_after() ? hidden : 0};
}

/// The columns that `of` says, of a layer with this kind of mixer or MLP.
template <class Kind, class Of>
RowShape of_kind(const auto& kinds, const Of& of) {
    const auto* kind = std::get_if<Kind>(&kinds);
    return kind != nullptr ? of(*kind) : RowShape{};
}

RowShape xielu_number(Layer layer, Hidden /*hidden*/) {
    return RowShape{has_activation_weights(layer)};
}

/// One for each value head.
RowShape delta_numbers(Layer layer, Hidden /*hidden*/) {
    return of_kind<DeltaNetSpec>(layer.mixer,
                                 [](const DeltaNetSpec& d) { return RowShape{d.value_heads}; });
}

/// In the order in which files have them.
constexpr TensorRow rows[] = {
    {LayerTensor::norm_before_mixer, LinearGroup::qkv,
     [](Layer l) {
         return has_names(l, NormNames::apertus) ? "attention_layernorm.weight"
                                                 : "input_layernorm.weight";
     },
     before},
    {LayerTensor::q_norm, LinearGroup::gate_up,
     [](Layer l) {
         return has_names(l, NormNames::hunyuan) ? "self_attn.query_layernorm.weight"
                                                 : "self_attn.q_norm.weight";
     },
     [](Layer l, Hidden) {
         return of_kind<AttentionSpec>(l.mixer, [](const AttentionSpec& a) {
             return RowShape{a.qk_norm ? a.q_norm_size() : 0};
         });
     }},
    {LayerTensor::k_norm, LinearGroup::gate_up,
     [](Layer l) {
         return has_names(l, NormNames::hunyuan) ? "self_attn.key_layernorm.weight"
                                                 : "self_attn.k_norm.weight";
     },
     [](Layer l, Hidden) {
         return of_kind<AttentionSpec>(l.mixer, [](const AttentionSpec& a) {
             return RowShape{a.qk_norm ? a.k_norm_size() : 0};
         });
     }},
    {LayerTensor::sinks, LinearGroup::gate_up, [](Layer) { return "self_attn.sinks"; },
     [](Layer l, Hidden) {
         return of_kind<AttentionSpec>(
             l.mixer, [](const AttentionSpec& a) { return RowShape{a.sinks ? a.heads : 0}; });
     },
     false, true},
    {LayerTensor::latent_q_norm, LinearGroup::gate_up,
     [](Layer) { return "self_attn.q_a_layernorm.weight"; },
     [](Layer l, Hidden) {
         return of_kind<AttentionSpec>(l.mixer, [](const AttentionSpec& a) {
             return RowShape{a.latent ? a.latent->q_rank : 0};
         });
     }},
    {LayerTensor::latent_kv_norm, LinearGroup::gate_up,
     [](Layer) { return "self_attn.kv_a_layernorm.weight"; },
     [](Layer l, Hidden) {
         return of_kind<AttentionSpec>(l.mixer, [](const AttentionSpec& a) {
             return RowShape{a.latent ? a.latent->kv_rank : 0};
         });
     }},
    {LayerTensor::delta_conv, LinearGroup::gate_up,
     [](Layer) { return "linear_attn.conv1d.weight"; },
     [](Layer l, Hidden) {
         return of_kind<DeltaNetSpec>(l.mixer, [](const DeltaNetSpec& d) {
             return RowShape{d.conv_width, d.conv_size(), d.conv_parts()};
         });
     }},
    {LayerTensor::delta_a_log, LinearGroup::gate_up, [](Layer) { return "linear_attn.A_log"; },
     delta_numbers, false, true},
    {LayerTensor::delta_dt_bias, LinearGroup::gate_up, [](Layer) { return "linear_attn.dt_bias"; },
     delta_numbers, false, true},
    {LayerTensor::delta_norm, LinearGroup::gate_up, [](Layer) { return "linear_attn.norm.weight"; },
     [](Layer l, Hidden) {
         return of_kind<DeltaNetSpec>(l.mixer,
                                      [](const DeltaNetSpec& d) { return RowShape{d.value_dim}; });
     }},
    {LayerTensor::norm_after_mixer, LinearGroup::gate_up,
     [](Layer l) {
         return has_names(l, NormNames::glm4) ? "post_self_attn_layernorm.weight"
                                              : "post_attention_layernorm.weight";
     },
     after},
    {LayerTensor::norm_before_mlp, LinearGroup::gate_up,
     [](Layer l) {
         if (has_names(l, NormNames::apertus)) return "feedforward_layernorm.weight";
         const bool usual = l.norms.has_after() && !has_names(l, NormNames::glm4);
         return usual ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
     },
     before},
    {LayerTensor::router, LinearGroup::gate_up, [](Layer) { return "mlp.gate.weight"; },
     [](Layer l, Hidden hidden) {
         return of_kind<ExpertSpec>(l.mlp, [&](const ExpertSpec& experts) {
             return RowShape{hidden, experts.count};
         });
     }},
    {LayerTensor::router_bias, LinearGroup::gate_up,
     [](Layer) { return "mlp.gate.e_score_correction_bias"; },
     [](Layer l, Hidden) {
         return of_kind<ExpertSpec>(l.mlp, [](const ExpertSpec& experts) {
             return RowShape{experts.biased_choice ? experts.count : 0};
         });
     },
     false, true},
    {LayerTensor::router_logit_bias, LinearGroup::gate_up, [](Layer) { return "mlp.gate.bias"; },
     [](Layer l, Hidden) {
         return of_kind<ExpertSpec>(l.mlp, [](const ExpertSpec& experts) {
             return RowShape{experts.router_bias ? experts.count : 0};
         });
     },
     false, true},
    {LayerTensor::experts_gate_up_bias, LinearGroup::gate_up,
     [](Layer) { return "mlp.experts.gate_up_bias"; },
     [](Layer l, Hidden) {
         return of_kind<ExpertSpec>(l.mlp, [](const ExpertSpec& experts) {
             return experts.bias ? RowShape{2 * experts.size, experts.held(), {}, 2} : RowShape{};
         });
     },
     false, true},
    {LayerTensor::experts_down_bias, LinearGroup::gate_up,
     [](Layer) { return "mlp.experts.down_bias"; },
     [](Layer l, Hidden hidden) {
         return of_kind<ExpertSpec>(l.mlp, [&](const ExpertSpec& experts) {
             return experts.bias ? RowShape{hidden, experts.held()} : RowShape{};
         });
     },
     false, true, true},
    {LayerTensor::shared_gate, LinearGroup::shared_gate_up,
     [](Layer) { return "mlp.shared_expert_gate.weight"; },
     [](Layer l, Hidden hidden) {
         return of_kind<ExpertSpec>(l.mlp, [&](const ExpertSpec& experts) {
             return experts.shared_gate ? RowShape{hidden, 1} : RowShape{};
         });
     }},
    {LayerTensor::xielu_positive,
     {},
     [](Layer) { return "mlp.act_fn.alpha_p"; },
     xielu_number,
     true},
    {LayerTensor::xielu_negative,
     {},
     [](Layer) { return "mlp.act_fn.alpha_n"; },
     xielu_number,
     true},
    {LayerTensor::norm_after_mlp,
     {},
     [](Layer l) {
         return has_names(l, NormNames::glm4) ? "post_mlp_layernorm.weight"
                                              : "post_feedforward_layernorm.weight";
     },
     after},
};
static_assert(std::size(rows) == layer_tensor_count);
static_assert([] {
    for (std::size_t i = 0; i < std::size(rows); ++i) {
        if (rows[i].tensor != static_cast<LayerTensor>(i)) return false;
    }
    return true;
}());

const TensorRow& row_of(LayerTensor tensor) {
    return rows[static_cast<std::size_t>(tensor)];
}

}  // namespace

LayerTensorShape layer_tensor_shape(const LayerSpec& layer, std::int64_t hidden_size,
                                    LayerTensor tensor) {
    return row_of(tensor).shape(layer, hidden_size);
}

std::string layer_tensor_name(std::int64_t layer, LayerTensor tensor, const LayerSpec& spec) {
    return cat("model.layers.", layer, ".", row_of(tensor).name(spec));
}

bool is_on_host(LayerTensor tensor) {
    return row_of(tensor).is_on_host;
}

bool is_f32(LayerTensor tensor) {
    return row_of(tensor).is_f32;
}

bool is_of_first_lane(LayerTensor tensor) {
    return row_of(tensor).is_of_first_lane;
}

std::optional<LinearGroup> group_behind(LayerTensor tensor) {
    return row_of(tensor).behind_it;
}

}  // namespace loratrain

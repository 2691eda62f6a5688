#include "config/model_limits.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace loratrain {

namespace {

using Of = const ModelSpec&;

/// A stage has one size of everything that a layer uses, of each kind of MLP; positions and masks
/// are each layer's own.
bool is_alike(const LayerSpec& a, const LayerSpec& b) {
    LayerSpec like = b;
    like.attention().rope = a.attention().rope;
    like.attention().sliding_window = a.attention().sliding_window;
    like.attention().multiplier = a.attention().multiplier;
    if (a.mlp.index() != b.mlp.index()) like.mlp = a.mlp;
    return a == like;
}

bool has_unlike_layers(Of m) {
    return std::any_of(m.descriptions.begin(), m.descriptions.end(), [&](const LayerSpec& layer) {
        return std::any_of(m.descriptions.begin(), m.descriptions.end(),
                           [&](const LayerSpec& other) { return !is_alike(layer, other); });
    });
}

template <class Has>
bool any_layer(Of m, const Has& has) {
    return std::any_of(m.descriptions.begin(), m.descriptions.end(), has);
}

bool has_whole_norms(Of m) {
    return any_layer(m, [](const LayerSpec& l) { return l.attention().qk_norm_whole; });
}

bool has_fused_linears(Of m) {
    return has_linear(m, Linear::qkv) || has_linear(m, Linear::gate_up);
}

std::string fused_names(Of m) {
    std::vector<std::string> names;
    for (const Linear linear : {Linear::qkv, Linear::gate_up}) {
        if (has_linear(m, linear)) names.emplace_back(module_name(linear));
    }
    return join(names, ", ");
}

std::string lora_in_experts(Of m) {
    const bool beside =
        is_beside_experts(m, Linear::down) || is_beside_experts(m, Linear::shared_down);
    return cat("LoRA in the ", beside ? "MLPs" : "experts", " of a ", m.family, " model");
}

constexpr ModelLimit limits[] = {
    {Ability::training, has_unlike_layers,
     [](Of /*any*/) { return std::string("layers of unlike sizes or kinds are not supported"); },
     "this kind of model cannot be trained here"},

    {Ability::lanes, has_whole_norms,
     [](Of /*any*/) { return std::string("lanes cannot share norms over all heads of q and k"); }},
    {Ability::lanes, [](Of m) { return m.logits_soft_cap > 0.0; },
     [](Of /*any*/) { return std::string("lanes cannot share logits with a soft cap"); }},
    {Ability::lanes, has_experts,
     [](Of /*any*/) { return std::string("lanes cannot share experts"); }},
    {Ability::lanes, has_fused_linears,
     [](Of m) { return cat("lanes cannot share fused linears (", fused_names(m), ")"); }},

    {Ability::fp8, has_experts,
     [](Of m) { return cat("experts of a ", m.family, " model are not computed in fp8"); },
     "use model.precision: bf16"},

    {Ability::modules, has_experts,
     [](Of m) {
         return lora_in_experts(m) + " does not go with patterns, layers, excluded or whole names";
     },
     "give names alone, as in [q_proj, v_proj, down_proj], without rank_pattern, alpha_pattern, "
     "layers_to_transform and exclude_modules"},
    {Ability::dropout, has_experts,
     [](Of m) { return lora_in_experts(m) + " takes no dropout; PEFT refuses it too"; },
     "set lora_dropout: 0"},
    {Ability::dora, has_experts, [](Of m) { return lora_in_experts(m) + " cannot be DoRA"; },
     "set use_dora: false"},
    {Ability::vera, has_experts, [](Of m) { return lora_in_experts(m) + " cannot be VeRA"; },
     "use peft_type: lora"},
    {Ability::residual_start, has_experts,
     [](Of /*any*/) { return std::string("cannot start from the weights of experts"); },
     "leave init_lora_weights out"},
};

}  // namespace

const ModelLimit* limit_of(const ModelSpec& model, Ability ability) {
    const auto* const found =
        std::find_if(std::begin(limits), std::end(limits), [&](const ModelLimit& limit) {
            return limit.ability == ability && limit.has_trait(model);
        });
    return found == std::end(limits) ? nullptr : found;
}

}  // namespace loratrain

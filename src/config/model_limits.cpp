#include "config/model_limits.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "base/text.h"

namespace loratrain {

namespace {

using Of = const ModelSpec&;

bool is_alike(AttentionSpec a, const AttentionSpec& b) {
    a.rope = b.rope;
    a.sliding_window = b.sliding_window;
    a.multiplier = b.multiplier;
    return a == b;
}
bool is_alike(const DeltaNetSpec& a, const DeltaNetSpec& b) {
    return a == b;
}

bool has_alike_mixers(const Mixer& a, const Mixer& b) {
    if (a.index() != b.index()) return true;
    return std::visit(
        [&](const auto& kind) { return is_alike(kind, std::get<std::decay_t<decltype(kind)>>(b)); },
        a);
}

/// A stage has one size of everything that a layer uses, of each kind of mixer and MLP; positions
/// and masks are each layer's own.
bool is_alike(const LayerSpec& a, const LayerSpec& b) {
    return has_alike_mixers(a.mixer, b.mixer) &&
           (a.mlp.index() != b.mlp.index() || a.mlp == b.mlp) && a.norms == b.norms;
}

bool has_unlike_layers(Of m) {
    return std::any_of(m.descriptions.begin(), m.descriptions.end(), [&](const LayerSpec& layer) {
        return std::any_of(m.descriptions.begin(), m.descriptions.end(),
                           [&](const LayerSpec& other) { return !is_alike(layer, other); });
    });
}

bool has_delta_nets(Of m) {
    return m.delta_nets() != nullptr;
}

/// Wider than the kernels of GPUs take.
bool has_wide_delta_keys(Of m) {
    const DeltaNetSpec* net = m.delta_nets();
    return net != nullptr && net->key_dim > 256;
}

bool has_packed_experts(Of m) {
    return has_experts(m) && packs_experts(m.experts()->names);
}

bool has_gpt_oss_experts(Of m) {
    return has_experts(m) && m.experts()->names == ExpertNames::gpt_oss;
}

std::string no_quantised_experts(Of m) {
    return cat(
        "experts of a ", m.family,
        " model are not written in nf4, int8 and fp8: transformers does not load such experts");
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
    {Ability::training, [](Of m) { return m.attention_layers() == nullptr; },
     [](Of /*any*/) {
         return std::string("models without a layer of attention are not supported");
     },
     "this kind of model cannot be trained here"},

    {Ability::training, has_wide_delta_keys,
     [](Of /*any*/) {
         return std::string(
             "gated delta nets with key heads of more than 256 columns are not "
             "supported");
     },
     "this kind of model cannot be trained here"},

    {Ability::merge, [](Of m) { return !m.wrapper.empty(); },
     [](Of m) {
         return cat("the base is the text model of a ", m.wrapper,
                    ", whose other parts are not in it");
     },
     "merge it with PEFT: merge_and_unload()"},

    {Ability::merge_linears, has_gpt_oss_experts, no_quantised_experts, "use --quantize mxfp4"},
    {Ability::merge_linears, has_experts, no_quantised_experts, "leave --quantize out"},
    {Ability::merge_mxfp4, [](Of m) { return !has_experts(m); },
     [](Of m) {
         return cat("programs load mxfp4 only in experts of gpt_oss, and a ", m.family,
                    " model has no experts");
     },
     "use --quantize nf4, int8 or fp8"},
    {Ability::merge_mxfp4, [](Of m) { return !has_gpt_oss_experts(m); },
     [](Of m) {
         return cat("programs load mxfp4 only in experts of gpt_oss, not in those of a ", m.family,
                    " model");
     },
     "leave --quantize out"},

    {Ability::fp8,
     [](Of m) { return m.attention_layers() != nullptr && m.attention().latent.has_value(); },
     [](Of m) {
         return cat("latent attention of a ", m.family, " model cannot be computed in fp8");
     },
     "use model.precision: bf16"},
    {Ability::fp8, has_delta_nets,
     [](Of m) {
         return cat("gated delta nets of a ", m.family, " model cannot be computed in fp8");
     },
     "use model.precision: bf16"},

    {Ability::experts, [](Of m) { return has_experts(m) && !m.wrapper.empty(); },
     [](Of m) { return cat("PEFT does not find LoRA in the experts of a ", m.wrapper, " model"); },
     "take all-linear, which has the shared expert alone, or import the text model alone, as "
     "AutoModelForCausalLM saves it"},
    {Ability::experts, has_packed_experts,
     [](Of m) { return cat("LoRA in the experts of a ", m.family, " model is not computed yet"); },
     "take all-linear, or name some of q_proj, k_proj, v_proj and o_proj"},
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
    {Ability::tokens_on_stages, [](Of m) { return m.tie_word_embeddings; },
     [](Of m) {
         return cat("the head of this ", m.family,
                    " model is its embedding: stages of a pipeline cannot share rows of tokens");
     },
     "give parallel.deployment replicas with pp: 1, as in [{pp: 1, count: 2}] for 2 ranks"},
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

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "config/layer_spec.h"
#include "config/linears.h"

namespace loratrain {

/// The frozen decoder-only transformer (Llama family): its global dimensions, and its layers. Read
/// from the HF config.json that is kept in the weights file. With multipliers e, r and l, as in
/// granite:
///   x = e embedding;  x += r attention(norm x), x += r mlp(norm x) per layer;  logits = head / l
struct ModelSpec {
    /// HF model_type: llama, mistral, ..., gemma3_text (io/weights/hf_config.h).
    std::string family;
    /// HF model_type of the config that holds this one as its text_config: gemma3, mistral3; else
    /// empty.
    std::string wrapper{};
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t layers = 0;
    /// The different layers. Equal layers share a description, because plans are copied by the
    /// thousand.
    std::vector<LayerSpec> descriptions{LayerSpec{}};
    std::vector<std::uint16_t> description_of{};  ///< per layer, an index in descriptions; empty:
                                                  ///< all layers have the first
    double rms_norm_eps = 1e-6;
    bool norm_plus_one = false;        ///< norms multiply by 1 + weight (gemma2)
    bool tie_word_embeddings = false;  ///< the head is the embedding matrix
    /// The padding token, whose embedding is not trained (torch's padding_idx). Read from
    /// config.json, or the family's default.
    std::int64_t pad_token = -1;  ///< -1: none
    double embedding_multiplier = 1.0;
    double residual_multiplier = 1.0;
    double logits_scaling = 1.0;
    /// The embedding module itself multiplies with embedding_multiplier, in the type of the weights
    /// and before noise is added (gemma2).
    bool embeds_scaled = false;
    double logits_soft_cap = 0.0;  ///< as AttentionSpec::soft_cap
    /// Quantisation of the linears of the layers, in the file and on a backend. None: they are
    /// dense, as all other weights are.
    std::optional<Quantization> quantization{};

    const LayerSpec& layer(std::int64_t i) const {
        return descriptions[description_of.empty() ? 0
                                                   : description_of[static_cast<std::size_t>(i)]];
    }
    /// Sets `layers` and their descriptions, one entry of `each` per layer.
    void set_layers(const std::vector<LayerSpec>& each);

    // Parts of the first layer that has them: layers that have a part have it alike
    // (config/model_limits.h). The non-const forms are for models with one description.
    AttentionSpec& attention() { return const_cast<AttentionSpec&>(*attention_layers()); }
    /// Of a model that has such layers (Ability::training).
    const AttentionSpec& attention() const { return *attention_layers(); }
    const AttentionSpec* attention_layers() const { return first_mixer<AttentionSpec>(); }
    const DeltaNetSpec* delta_nets() const { return first_mixer<DeltaNetSpec>(); }  ///< null: none
    DenseSpec& dense() { return const_cast<DenseSpec&>(*dense_layers()); }
    const DenseSpec& dense() const { return *dense_layers(); }
    const DenseSpec* dense_layers() const { return first_mlp<DenseSpec>(); }  ///< null: none
    const ExpertSpec* experts() const { return first_mlp<ExpertSpec>(); }     ///< null: none
    const Norms& norms() const { return layer(0).norms; }
    Norms& norms() { return descriptions.front().norms; }

    // The residual stream is kept as z = x / r: z = (e / r) embedding, z += attention(norm x), and
    // norm x with eps is the norm of z with eps / r^2, so that r costs nothing in any layer.
    double embedding_scale() const { return embedding_multiplier / residual_multiplier; }
    double stream_eps() const { return rms_norm_eps / (residual_multiplier * residual_multiplier); }

  private:
    template <class Kind>
    const Kind* first_mixer() const {
        for (const LayerSpec& layer : descriptions) {
            if (const auto* kind = std::get_if<Kind>(&layer.mixer)) return kind;
        }
        return nullptr;
    }
    template <class Kind>
    const Kind* first_mlp() const {
        for (const LayerSpec& layer : descriptions) {
            if (const auto* kind = std::get_if<Kind>(&layer.mlp)) return kind;
        }
        return nullptr;
    }
};

/// What is wrong with descriptions and description_of; null if each layer has a description.
const char* description_problem(const ModelSpec& spec);

/// Calls take(layer, number) for each description that some of the layers [first, first + count)
/// have. `number`: how many of these layers have it.
template <class Take>
void for_layers(const ModelSpec& spec, std::int64_t first, std::int64_t count, const Take& take) {
    if (spec.description_of.empty()) return take(spec.descriptions.front(), count);
    for (std::size_t d = 0; d < spec.descriptions.size(); ++d) {
        std::int64_t number = 0;
        for (std::int64_t i = first; i < first + count; ++i) {
            number += spec.description_of[static_cast<std::size_t>(i)] == d ? 1 : 0;
        }
        if (number > 0) take(spec.descriptions[d], number);
    }
}

/// The different ways in which layers rotate q and k, in the order of layers.
std::vector<const RopeSpec*> ropes_of(const ModelSpec& spec);
/// Most tokens of a sample that longrope's short factors rotate; without longrope as many as an
/// int32 counts.
std::int32_t short_length(const ModelSpec& spec);

/// Whether a layer has experts.
bool has_experts(const ModelSpec& spec);

}  // namespace loratrain

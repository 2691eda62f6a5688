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

/// The frozen decoder-only transformer (Llama family): what is once in it, and its layers. Read
/// from the HF config.json that is kept in the weights file. With multipliers e, r and l as granite
/// has them
///   x = e embedding;  x += r attention(norm x), x += r mlp(norm x) per layer;  logits = head / l
struct ModelSpec {
    std::string
        family;  ///< HF model_type: llama, mistral, ..., gemma3_text (io/weights/hf_config.h)
    /// HF model_type of the config that this one's is text_config of: gemma3, mistral3; else empty.
    std::string wrapper{};
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t layers = 0;
    /// Equal layers share a description: plans are copied by the thousand.
    std::vector<LayerSpec> descriptions{LayerSpec{}};
    std::vector<std::uint16_t> description_of{};  ///< of each layer; empty: all have the first
    double rms_norm_eps = 1e-6;
    bool norm_plus_one = false;        ///< norms multiply by 1 + weight (gemma2)
    bool tie_word_embeddings = false;  ///< the head is the embedding matrix
    /// The padding token, whose embedding is not trained (torch's padding_idx). Only the file says
    /// which it is.
    std::int64_t pad_token = -1;  ///< -1: none
    double embedding_multiplier = 1.0;
    double residual_multiplier = 1.0;
    double logits_scaling = 1.0;
    /// The embedding module itself multiplies: with embedding_multiplier in the type of weights,
    /// and before noise is added (gemma2).
    bool embeds_scaled = false;
    double logits_soft_cap = 0.0;  ///< as AttentionSpec::soft_cap
    /// Of the linears of the layers, in its file and on a backend; none: dense as all the rest.
    std::optional<Quantization> quantization{};

    const LayerSpec& layer(std::int64_t i) const {
        return descriptions[description_of.empty() ? 0
                                                   : description_of[static_cast<std::size_t>(i)]];
    }
    /// So many, one after another; `layers` too.
    void set_layers(const std::vector<LayerSpec>& each);

    // Of the first layer. Sizes are alike in all (config/model_limits.h). To change them: of a
    // model with one description.
    AttentionSpec& attention() { return descriptions.front().attention(); }
    const AttentionSpec& attention() const { return layer(0).attention(); }
    DenseSpec& dense() { return descriptions.front().dense(); }
    const DenseSpec& dense() const { return layer(0).dense(); }
    const ExpertSpec* experts() const { return layer(0).experts(); }
    const Norms& norms() const { return layer(0).norms; }
    Norms& norms() { return descriptions.front().norms; }

    // The residual stream is kept as z = x / r: z = (e / r) embedding, z += attention(norm x), and
    // norm x with eps is the norm of z with eps / r^2, so that r costs nothing in any layer.
    double embedding_scale() const { return embedding_multiplier / residual_multiplier; }
    double stream_eps() const { return rms_norm_eps / (residual_multiplier * residual_multiplier); }
};

/// What is wrong with descriptions and description_of: null where each layer has one.
const char* description_problem(const ModelSpec& spec);

/// take(layer, number) for each description that layers [first, first + count) have, with the
/// number of layers that have it.
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

/// How q and k of the layers are rotated: each different way once, in the order of layers.
std::vector<const RopeSpec*> ropes_of(const ModelSpec& spec);
/// Tokens that a sample may have: those that longrope's factors are for, else as many as an int32
/// counts.
std::int64_t most_positions(const ModelSpec& spec);

}  // namespace loratrain

#pragma once

#include "config/model_spec.h"

namespace loratrain::test {

/// A model for tests that hold its tensors or compute with it.
inline ModelSpec small_model(std::int64_t layers = 3) {
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = 61;
    model.hidden_size = 32;
    model.dense().size = 48;
    model.layers = layers;
    model.attention().heads = 4;
    model.attention().kv_heads = 2;
    model.attention().head_dim = 8;
    model.rms_norm_eps = 1e-5;
    return model;
}

/// The same so wide that rows are whole blocks of quantised formats.
inline ModelSpec quantizable_model(std::int64_t layers = 3) {
    ModelSpec model = small_model(layers);
    model.hidden_size = model.dense().size = 128;
    model.attention().head_dim = 32;
    return model;
}

/// The model with gated delta nets in all layers but every third, whose attention has output gates
/// and norms of q and k. Norms have an eps of the size of what the first rows make: with a smaller
/// one the loss is so steep that finite differences and roundings say little.
inline ModelSpec with_delta_nets(ModelSpec model, DeltaLinears linears) {
    model.rms_norm_eps = 0.03;
    model.attention().qk_norm = model.attention().output_gate = true;
    std::vector<LayerSpec> layers(static_cast<std::size_t>(model.layers), model.layer(0));
    for (std::size_t l = 0; l < layers.size(); ++l) {
        if (l % 3 != 2) layers[l].mixer = DeltaNetSpec{2, 4, 8, 12, 4, linears};
    }
    model.set_layers(layers);
    return model;
}

}  // namespace loratrain::test

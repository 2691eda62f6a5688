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

}  // namespace loratrain::test

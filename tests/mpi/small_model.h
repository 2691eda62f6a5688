#pragma once

#include "config/model_spec.h"

namespace loratrain::mpi_test {

inline ModelSpec small_model(std::int64_t layers = 3) {
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = 50;
    model.hidden_size = 16;
    model.intermediate_size = 24;
    model.layers = layers;
    model.heads = 2;
    model.kv_heads = 1;
    model.head_dim = 8;
    return model;
}

}  // namespace loratrain::mpi_test

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "config/model_spec.h"

namespace loratrain {

/// Useful work per token. weights: 4 FLOP per weight in a matrix product (forward and input
/// gradient; a frozen base has no weight gradient). attention: 3 x 2 L Q D s, causal, over samples
/// of s tokens (of several lengths: sum of squares over sum). LoRA's own work is not counted, nor
/// is anything that is computed twice.
struct TokenFlop {
    double weights = 0.0;
    double attention = 0.0;
};
TokenFlop token_flop(const ModelSpec& model, double sample_tokens);

/// Dense matrix FLOP/s that the maker states for a GPU, by its CUDA name: 989e12 in bf16 for the
/// SXM boards of H100 and H200. None for other devices and types.
std::optional<double> peak_flop_rate(const std::string& device, DType compute);

}  // namespace loratrain

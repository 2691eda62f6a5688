#pragma once

#include "config/model_spec.h"

namespace loratrain {

/// Useful work per trained token. weights: 4 FLOP per weight in a matrix product (forward and input
/// gradient; a frozen base has no weight gradient). attention: 3 x 2 L Q D s, causal, over samples
/// of s tokens (of several lengths: sum of squares over sum); of a gated delta net 3 x 6 Hv Dk Dv
/// (three products of its state with a vector), however long samples are. LoRA's own work is not
/// counted, nor is anything that is computed twice.
struct TokenFlop {
    double weights = 0.0;
    double attention = 0.0;
    double total() const { return weights + attention; }
};
TokenFlop token_flop(const ModelSpec& model, double sample_tokens);

}  // namespace loratrain

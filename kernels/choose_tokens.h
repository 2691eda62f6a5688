#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// The choice of tokens. Formulas: src/base/token_choice.h, whose structs these are.

struct TokenDraw {
    double temperature;
    double top_p;
    double uniform;
};
struct ChosenToken {
    float logit;
    float logprob;
    std::int32_t token;
};

/// tokens[i] = the choice from row i of the logits with draws[i]. Sums have a fixed order.
struct ChooseTokensParams {
    Matrix logits;
    const TokenDraw* draws;
    ChosenToken* tokens;
};
cudaError_t choose_tokens(cudaStream_t stream, const ChooseTokensParams& params);

}  // namespace loratrain::kernels

#pragma once

#include <cstdint>
#include <span>

namespace loratrain {

/// Chooses the next token of a text from its logits.

/// How the token is chosen.
struct TokenDraw {
    double temperature = 0.0;  ///< 0 = the most likely token, the first of equal ones
    double top_p = 1.0;
    double uniform = 0.0;  ///< random number in [0, 1)
};

/// The token that was chosen.
struct ChosenToken {
    float logit = 0.0F;
    /// log softmax(logits) of the token: of all tokens, at temperature 1, as a loss computes it.
    /// NaN if a logit is NaN or +infinity, or if all are -infinity. 0 at temperature 0.
    float logprob = 0.0F;
    std::int32_t token = 0;
};

/// Draws from softmax(logits / temperature) of the most likely tokens: the fewest, from the most
/// likely one on, whose probabilities add up to top_p or more (Holtzman et al. 2020). Of equal
/// logits the first comes first. The token is the first one, in the order of the vocabulary, up to
/// which the probabilities of these tokens add up to more than `uniform` of their sum.
ChosenToken choose_token(std::span<const float> logits, const TokenDraw& draw);

}  // namespace loratrain

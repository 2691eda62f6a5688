#pragma once

#include <cstdint>
#include <span>

namespace loratrain {

/// Draws tokens from logits.

/// How a text's next token is chosen.
struct Draw {
    double temperature = 0.0;  ///< 0 = the most likely token, the first of equal ones
    double top_p = 1.0;
    std::uint64_t key = 0;  ///< of the random numbers
    std::uint32_t step = 0;
    std::uint32_t prompt = 0;
    std::uint32_t member = 0;  ///< of the prompt's group

    bool is_greedy() const { return temperature == 0.0; }
    /// In [0, 1), for the text's token `position`, a function of it and of the fields alone.
    double uniform(std::uint32_t position) const;
};

/// A token that was drawn. `logprob` is log softmax(logits) of it: of all tokens, at temperature 1,
/// as a loss computes it; NaN if a logit is not finite.
struct DrawnToken {
    float logprob = 0.0F;
    std::int32_t token = 0;
};

/// Draws with `uniform` from softmax(logits / temperature) of the most likely tokens: the fewest,
/// from the most likely one on, whose probabilities add up to top_p or more (Holtzman et al. 2020).
/// Of equal logits the first comes first. The walk is over tokens in their order, or with top_p < 1
/// from the most likely one on.
DrawnToken draw_token(std::span<const float> logits, const Draw& draw, double uniform);

}  // namespace loratrain

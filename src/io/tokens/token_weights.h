#pragma once

#include <optional>
#include <span>

#include "io/tokens/token_file.h"

namespace loratrain {

/// Beyond these limits scales of gradients would leave the range of fp32.
inline constexpr double smallest_weight = 1e-30;
inline constexpr double largest_weight = 1e30;
inline constexpr const char* weight_hint = "a token's weight is 0, or from 1e-30 to 1e30";

/// Whether a token may have the weight.
bool is_weight(double value);
/// Place of the first value that is no weight.
std::optional<std::size_t> first_bad_weight(std::span<const float> values);

/// Makes weights as TokenSample has them of weights as they are given, one for each label.
void settle_weights(TokenSample& sample);

}  // namespace loratrain

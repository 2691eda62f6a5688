#pragma once

#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Rotary frequencies inv_freq [D/2], of longrope [D], as HF transformers computes them, with
/// D = dim, L0 = original_max_position, and j = 0 .. D/2 - 1. The default type has
/// inv_freq_j = theta^(-2j/D). From it the other types compute:
///   linear:   inv_freq / factor
///   llama3:   w < high: inv_freq
///             w > low:  inv_freq / factor
///             between:  (1-s) inv_freq / factor + s inv_freq, with wavelength w = 2 pi / inv_freq,
///             low = L0 / low_freq_factor, high = L0 / high_freq_factor,
///             s = (L0 / w - low_freq_factor) / (high_freq_factor - low_freq_factor)
///   yarn:     ramp inv_freq / factor + (1 - ramp) inv_freq, with
///             ramp_j = (j - low) / (high - low) in [0, 1],
///             i(rotations) = D ln(L0 / (2 pi rotations)) / (2 ln theta),
///             low = i(beta_fast) rounded down, at least 0,
///             high = i(beta_slow) rounded up, at most D - 1; without truncate neither is rounded
///   longrope: 1 / (short_factors_j theta^(2j/D)), and behind them, for samples of more than L0
///             tokens, 1 / (long_factors_j theta^(2j/D))
/// Every step is rounded to fp32 as in transformers: at position 4096 one last bit is an angle of
/// 2e-4.
std::vector<float> rope_frequencies(const RopeSpec& rope, std::int64_t dim);

}  // namespace loratrain

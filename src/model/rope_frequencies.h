#pragma once

#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// inv_freq [D/2] of HF transformers, D = dim. Base: theta^(-2j/D). linear: divided by factor.
/// llama3, with wavelength w = 2 pi / inv_freq, low = L0 / low_freq_factor, high = L0 /
/// high_freq_factor:
///   w < high: unchanged; w > low: inv_freq / factor; between: (1-s) inv_freq / factor + s inv_freq
///   with s = (L0 / w - low_freq_factor) / (high_freq_factor - low_freq_factor).
/// yarn, with i(rotations) = D ln(L0 / (2 pi rotations)) / (2 ln theta), low = i(beta_fast) rounded
/// down and at least 0, high = i(beta_slow) rounded up and at most D - 1 (not rounded without
/// truncate), ramp_j = (j - low) / (high - low) in [0, 1]:
///   ramp inv_freq / factor + (1 - ramp) inv_freq
/// longrope: 1 / (short_factors_j theta^(2j/D)).
/// Every step is rounded to fp32 as there: at position 4096 one last bit is an angle of 2e-4.
std::vector<float> rope_frequencies(const RopeSpec& rope, std::int64_t dim);

}  // namespace loratrain

#pragma once

#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// inv_freq [D/2] of HF transformers. Base: theta^(-2j/D). linear: divided by factor. llama3, with
/// wavelength w = 2 pi / inv_freq, low = L0 / low_freq_factor, high = L0 / high_freq_factor:
///   w < high: unchanged; w > low: inv_freq / factor; between: (1-s) inv_freq / factor + s inv_freq
///   with s = (L0 / w - low_freq_factor) / (high_freq_factor - low_freq_factor).
/// Every step is rounded to fp32 as there: at position 4096 one last bit is an angle of 2e-4.
std::vector<float> rope_frequencies(const ModelSpec& spec);

}  // namespace loratrain

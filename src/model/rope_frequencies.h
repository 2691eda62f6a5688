#pragma once

#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// inv_freq [D/2] of HF transformers. Base: theta^(-2j/D). linear: divided by factor. llama3, with
/// wavelength w = 2 pi / inv_freq, low = L0 / low_freq_factor, high = L0 / high_freq_factor:
///   w < high: unchanged; w > low: inv_freq / factor; between: (1-s) inv_freq / factor + s inv_freq
///   with s = (L0 / w - low_freq_factor) / (high_freq_factor - low_freq_factor).
std::vector<float> rope_frequencies(const ModelSpec& spec);

}  // namespace loratrain

#include "model/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace loratrain {

namespace {

/// Rounded to fp32 also where a compiler would fuse it with what follows.
float product(float a, float b) {
    const volatile float rounded = a * b;
    return rounded;
}

float llama3_frequency(float inv_freq, const RopeSpec& rope) {
    const auto original = static_cast<double>(rope.original_max_position);
    const auto factor = static_cast<float>(rope.factor);
    const auto low = static_cast<float>(rope.low_freq_factor);
    const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
    const float wavelength = product(1.0F / inv_freq, 2.0F * std::numbers::pi_v<float>);
    if (wavelength < static_cast<float>(original / rope.high_freq_factor)) return inv_freq;
    if (wavelength > static_cast<float>(original / rope.low_freq_factor)) return inv_freq / factor;
    const float smooth = (static_cast<float>(original) / wavelength - low) / range;
    return product(1.0F - smooth, inv_freq) / factor + product(smooth, inv_freq);
}

}  // namespace

std::vector<float> rope_frequencies(const ModelSpec& spec) {
    std::vector<float> frequencies;
    for (std::int64_t j = 0; j < spec.head_dim / 2; ++j) {
        const float exponent = static_cast<float>(2 * j) / static_cast<float>(spec.head_dim);
        float inv_freq = 1.0F / static_cast<float>(std::pow(spec.rope.theta, double{exponent}));
        if (spec.rope.type == RopeType::linear) inv_freq /= static_cast<float>(spec.rope.factor);
        if (spec.rope.type == RopeType::llama3) inv_freq = llama3_frequency(inv_freq, spec.rope);
        frequencies.push_back(inv_freq);
    }
    return frequencies;
}

}  // namespace loratrain

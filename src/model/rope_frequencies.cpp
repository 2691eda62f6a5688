#include "model/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace loratrain {

namespace {

double llama3_frequency(double inv_freq, const RopeSpec& rope) {
    const auto original = static_cast<double>(rope.original_max_position);
    const double wavelength = 2.0 * std::numbers::pi / inv_freq;
    if (wavelength < original / rope.high_freq_factor) return inv_freq;
    if (wavelength > original / rope.low_freq_factor) return inv_freq / rope.factor;
    const double smooth = (original / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    return (1.0 - smooth) * inv_freq / rope.factor + smooth * inv_freq;
}

}  // namespace

std::vector<float> rope_frequencies(const ModelSpec& spec) {
    std::vector<float> frequencies;
    for (std::int64_t j = 0; j < spec.head_dim / 2; ++j) {
        const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(spec.head_dim);
        double inv_freq = std::pow(spec.rope.theta, exponent);
        if (spec.rope.type == RopeType::linear) inv_freq /= spec.rope.factor;
        if (spec.rope.type == RopeType::llama3) inv_freq = llama3_frequency(inv_freq, spec.rope);
        frequencies.push_back(static_cast<float>(inv_freq));
    }
    return frequencies;
}

}  // namespace loratrain

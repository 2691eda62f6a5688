#include "model/rope_frequencies.h"

#include <algorithm>
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

/// The frequencies that yarn interpolates between.
struct YarnRange {
    double low = 0.0;
    double high = 0.0;
};

YarnRange yarn_range(const RopeSpec& rope, std::int64_t dim) {
    const auto place_of = [&](double rotations) {
        const double turns =
            static_cast<double>(rope.original_max_position) / (rotations * 2.0 * std::numbers::pi);
        return static_cast<double>(dim) * std::log(turns) / (2.0 * std::log(rope.theta));
    };
    double low = place_of(rope.beta_fast);
    double high = place_of(rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(dim - 1));
    return {low, low == high ? high + 0.001 : high};  // as there
}

float yarn_frequency(float power, std::int64_t j, const YarnRange& range, double factor) {
    const float ramp = std::clamp((static_cast<float>(j) - static_cast<float>(range.low)) /
                                      static_cast<float>(range.high - range.low),
                                  0.0F, 1.0F);
    const float kept = 1.0F - ramp;
    const float interpolated = 1.0F / product(static_cast<float>(factor), power);
    return product(interpolated, 1.0F - kept) + product(1.0F / power, kept);
}

/// theta^(2j/dim)
float power_of(const RopeSpec& rope, std::int64_t dim, std::int64_t j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dim);
    return static_cast<float>(std::pow(rope.theta, double{exponent}));
}

std::vector<float> longrope_frequencies(const RopeSpec& rope, std::int64_t dim) {
    std::vector<float> frequencies;
    for (const std::vector<double>* factors : {&rope.short_factors, &rope.long_factors}) {
        for (std::int64_t j = 0; j < dim / 2; ++j) {
            const auto factor = static_cast<float>(factors->at(static_cast<std::size_t>(j)));
            frequencies.push_back(1.0F / product(factor, power_of(rope, dim, j)));
        }
    }
    return frequencies;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& rope, std::int64_t dim) {
    if (rope.type == RopeType::longrope) return longrope_frequencies(rope, dim);
    std::vector<float> frequencies;
    for (std::int64_t j = 0; j < dim / 2; ++j) {
        const float power = power_of(rope, dim, j);
        float inv_freq = 1.0F / power;
        if (rope.type == RopeType::linear) inv_freq /= static_cast<float>(rope.factor);
        if (rope.type == RopeType::llama3) inv_freq = llama3_frequency(inv_freq, rope);
        if (rope.type == RopeType::yarn) {
            inv_freq = yarn_frequency(power, j, yarn_range(rope, dim), rope.factor);
        }
        frequencies.push_back(inv_freq);
    }
    return frequencies;
}

}  // namespace loratrain

#include "io/weights/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::array<float, 16> mxfp4_values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};
constexpr std::uint8_t sign_bit = 8;
constexpr int exponent_bias = 127;
constexpr std::uint8_t nan_exponent = 255;

/// The code of a magnitude of at most 6.
std::uint8_t code_of(float magnitude) {
    std::uint8_t code = 0;
    for (std::uint8_t next = 1; next < sign_bit; ++next) {
        const float middle = (mxfp4_values[next - 1U] + mxfp4_values[next]) / 2.0F;
        if (magnitude > middle || (magnitude == middle && next % 2 == 0)) code = next;
    }
    return code;
}

std::uint8_t exponent_of(float largest) {
    if (largest == 0.0F) return 0;
    int exponent = 0;
    const float fraction = std::frexp(largest, &exponent);  // in [1/2, 1); 6 is 3/4 2^3
    const int scale = exponent - (fraction <= 0.75F ? 3 : 2);
    return static_cast<std::uint8_t>(std::max(scale + exponent_bias, 0));
}

}  // namespace

void decode_mxfp4(const std::uint8_t* codes, std::uint8_t exponent, float* target) {
    const float scale = exponent == nan_exponent ? std::numeric_limits<float>::quiet_NaN()
                                                 : std::ldexp(1.0F, int{exponent} - exponent_bias);
    for (std::int64_t i = 0; i < mxfp4_block_bytes; ++i) {
        target[2 * i] = mxfp4_values[codes[i] & 15U] * scale;
        target[2 * i + 1] = mxfp4_values[codes[i] >> 4U] * scale;
    }
}

std::uint8_t encode_mxfp4(std::span<const float> weights, std::uint8_t* codes) {
    LORATRAIN_CHECK(std::ssize(weights) == mxfp4_block, weights.size());
    float largest = 0.0F;
    for (const float weight : weights) largest = std::max(largest, std::abs(weight));
    const std::uint8_t exponent = exponent_of(largest);
    const float factor = std::ldexp(1.0F, exponent_bias - int{exponent});
    const auto code = [&](float weight) {
        const std::uint8_t found = code_of(std::abs(weight) * factor);
        return static_cast<std::uint8_t>(std::signbit(weight) ? found | sign_bit : found);
    };
    for (std::size_t i = 0; i < weights.size(); i += 2) {
        codes[i / 2] = static_cast<std::uint8_t>(code(weights[i]) | code(weights[i + 1]) << 4U);
    }
    return exponent;
}

}  // namespace loratrain

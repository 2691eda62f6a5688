#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace loratrain {

/// Mathematics in vector code: loops over rows, and elementary functions without branches or calls,
/// so that loops over them become vector code.

/// The largest of x[0, count) and `start`; NaN is ignored.
float largest_of(const float* x, std::int64_t count, float start);

/// The sum of x[j] y[j].
float dot(const float* x, const float* y, std::int64_t count);

/// x[0, count) *= factor.
void scale_values(float* x, std::int64_t count, float factor);

/// y[0, count) += factor x.
void add_scaled_values(float* y, const float* x, float factor, std::int64_t count);

/// e^x within 2 ulp (denormal results: within one denormal step); NaN stays NaN.
inline float exp_inline(float x) {
    constexpr float log2e = 1.44269504F;
    constexpr float ln2_high = 0.693359375F;
    constexpr float ln2_low = -2.12194440e-4F;
    constexpr float round_to_int = 12582912.0F;  // 1.5 * 2^23
    const float below = x > 89.0F ? 89.0F : x;
    const float bounded = below < -104.0F ? -104.0F : below;
    const float shifted = std::fma(bounded, log2e, round_to_int);
    const float n = shifted - round_to_int;
    float r = std::fma(n, -ln2_high, bounded);
    r = std::fma(n, -ln2_low, r);
    float p = 1.9875691500e-4F;
    p = std::fma(p, r, 1.3981999507e-3F);
    p = std::fma(p, r, 8.3334519073e-3F);
    p = std::fma(p, r, 4.1665795894e-2F);
    p = std::fma(p, r, 1.6666665459e-1F);
    p = std::fma(p, r, 5.0000001201e-1F);
    p = std::fma(p * r, r, r) + 1.0F;
    const auto exponent = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                                    std::bit_cast<std::uint32_t>(round_to_int));
    const std::int32_t half = exponent >> 1;
    const auto power = [](std::int32_t e) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23U);
    };
    return p * power(half) * power(exponent - half);
}

/// 1 / (1 + e^-x).
inline float sigmoid_inline(float x) {
    return 1.0F / (1.0F + exp_inline(-x));
}

/// tanh x within 2 ulp (near 0 as Moshier's Cephes).
inline float tanh_inline(float x) {
    const float far = 1.0F - 2.0F / (1.0F + exp_inline(2.0F * x));
    const float z = x * x;
    float p = -5.70498872745e-3F;
    p = std::fma(p, z, 2.06390887954e-2F);
    p = std::fma(p, z, -5.37397155531e-2F);
    p = std::fma(p, z, 1.33314422036e-1F);
    p = std::fma(p, z, -3.33332819422e-1F);
    const float near = std::fma(p * z, x, x);
    return z < 0.390625F ? near : far;
}

struct SinCos {
    double sin;
    double cos;
};

/// sin and cos to about 1e-15 for |x| < 1e6.
inline SinCos sin_cos_inline(double x) {
    constexpr double two_over_pi = 0.63661977236758134308;
    constexpr double half_pi_high = 1.57079632679489655800;
    constexpr double half_pi_low = 6.12323399573676603587e-17;
    constexpr double round_to_int = 6755399441055744.0;  // 1.5 * 2^52
    const double shifted = std::fma(x, two_over_pi, round_to_int);
    const double n = shifted - round_to_int;
    const double r = std::fma(n, -half_pi_low, std::fma(n, -half_pi_high, x));
    const double r2 = r * r;
    double s = -1.0 / 1307674368000.0;
    s = std::fma(s, r2, 1.0 / 6227020800.0);
    s = std::fma(s, r2, -1.0 / 39916800.0);
    s = std::fma(s, r2, 1.0 / 362880.0);
    s = std::fma(s, r2, -1.0 / 5040.0);
    s = std::fma(s, r2, 1.0 / 120.0);
    s = std::fma(s, r2, -1.0 / 6.0);
    s = std::fma(s * r2, r, r);
    double c = 1.0 / 20922789888000.0;
    c = std::fma(c, r2, -1.0 / 87178291200.0);
    c = std::fma(c, r2, 1.0 / 479001600.0);
    c = std::fma(c, r2, -1.0 / 3628800.0);
    c = std::fma(c, r2, 1.0 / 40320.0);
    c = std::fma(c, r2, -1.0 / 720.0);
    c = std::fma(c, r2, 1.0 / 24.0);
    c = std::fma(c, r2, -0.5);
    c = std::fma(c, r2, 1.0);
    const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted);
    const bool swap = (quadrant & 1U) != 0;
    const double first = swap ? c : s;
    const double second = swap ? s : c;
    return {(quadrant & 2U) != 0 ? -first : first, ((quadrant + 1U) & 2U) != 0 ? -second : second};
}

}  // namespace loratrain

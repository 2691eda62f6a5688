#include "backend/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"

namespace loratrain {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

double units_in_last_place(float got, double expected) {
    const double spacing =
        std::max(std::ldexp(1.0, std::ilogb(expected) - 23), std::ldexp(1.0, -149));
    return std::fabs(got - expected) / spacing;
}

/// The largest error over `count` points evenly spaced in [first, last).
double worst_exp_error(float first, float last, int count) {
    double worst = 0.0;
    for (int i = 0; i < count; ++i) {
        const float x = first + (last - first) * static_cast<float>(i) / static_cast<float>(count);
        worst = std::max(worst, units_in_last_place(exp_inline(x), std::exp(double{x})));
    }
    return worst;
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
    EXPECT_LE(worst_exp_error(-87.3F, 88.72F, 1000000), 2.0);
    EXPECT_LE(worst_exp_error(-0.5F, 0.5F, 100000), 2.0);
    EXPECT_LE(worst_exp_error(-1e-4F, 1e-4F, 1000), 2.0);
}

TEST(VectorMath, ExpAtTheEdges) {
    EXPECT_EQ(exp_inline(0.0F), 1.0F);
    EXPECT_EQ(exp_inline(-0.0F), 1.0F);
    EXPECT_EQ(exp_inline(-infinity), 0.0F);
    EXPECT_EQ(exp_inline(-200.0F), 0.0F);
    EXPECT_EQ(exp_inline(infinity), infinity);
    EXPECT_EQ(exp_inline(89.0F), infinity);
    EXPECT_TRUE(std::isnan(exp_inline(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_LE(worst_exp_error(-103.9F, -87.0F, 2000), 2.0) << "denormal results";
}

TEST(VectorMath, SinAndCos) {
    for (std::uint64_t i = 0; i < 100000; ++i) {
        const double x = (uniform_float(1, i) - 0.5) * std::pow(10.0, static_cast<double>(i % 8));
        const SinCos got = sin_cos_inline(x);
        EXPECT_NEAR(got.sin, std::sin(x), 1e-10) << x;
        EXPECT_NEAR(got.cos, std::cos(x), 1e-10) << x;
    }
    EXPECT_EQ(sin_cos_inline(0.0).sin, 0.0);
    EXPECT_EQ(sin_cos_inline(0.0).cos, 1.0);
}

}  // namespace
}  // namespace loratrain

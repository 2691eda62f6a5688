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

TEST(VectorMath, ExpIsWithinTwoUlp) {
    double worst = 0.0;
    for (float x = -87.3F; x < 88.72F; x += 1.7e-4F) {
        worst = std::max(worst, units_in_last_place(exp_inline(x), std::exp(double{x})));
    }
    for (float x = 1e-10F; x < 1.0F; x *= 1.01F) {
        worst = std::max(worst, units_in_last_place(exp_inline(-x), std::exp(-double{x})));
    }
    EXPECT_LE(worst, 2.0);
}

TEST(VectorMath, ExpAtTheEdges) {
    EXPECT_EQ(exp_inline(0.0F), 1.0F);
    EXPECT_EQ(exp_inline(-0.0F), 1.0F);
    EXPECT_EQ(exp_inline(-infinity), 0.0F);
    EXPECT_EQ(exp_inline(-200.0F), 0.0F);
    EXPECT_EQ(exp_inline(infinity), infinity);
    EXPECT_EQ(exp_inline(89.0F), infinity);
    EXPECT_TRUE(std::isnan(exp_inline(std::numeric_limits<float>::quiet_NaN())));
    for (float x = -103.9F; x < -87.0F; x += 0.01F) {
        EXPECT_LE(units_in_last_place(exp_inline(x), std::exp(double{x})), 2.0) << x;
    }
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

#include "base/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace loratrain::test {

namespace {

bool is_nan_code(int code) {
    return (code & 0x7f) == e4m3_nan;
}

}  // namespace

TEST(E4m3, EveryCodeIsItsFormula) {
    for (int code = 0; code < 256; ++code) {
        const float value = from_e4m3(static_cast<std::uint8_t>(code));
        if (is_nan_code(code)) {
            EXPECT_TRUE(std::isnan(value));
            continue;
        }
        const int exponent = (code >> 3) & 15;
        const int mantissa = code & 7;
        const double size =
            exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 7 - 3);
        EXPECT_EQ(value, code < 128 ? size : -size) << code;
        EXPECT_EQ(std::signbit(value), code >= 128) << code;
        EXPECT_EQ(to_e4m3(value), code);
    }
    EXPECT_EQ(from_e4m3(0x7e), largest_e4m3);
}

TEST(E4m3, RoundsToTheNearerCodeAndTiesToEven) {
    for (int code = 0; code < 0x7e; ++code) {
        const float low = from_e4m3(static_cast<std::uint8_t>(code));
        const float high = from_e4m3(static_cast<std::uint8_t>(code + 1));
        const float tie = (low + high) / 2.0F;
        const int even = code % 2 == 0 ? code : code + 1;
        EXPECT_EQ(to_e4m3(tie), even);
        EXPECT_EQ(to_e4m3(std::nextafter(tie, 0.0F)), code);
        EXPECT_EQ(to_e4m3(std::nextafter(tie, 1000.0F)), code + 1);
        EXPECT_EQ(to_e4m3(-tie), even | 0x80);
        EXPECT_EQ(to_e4m3(-std::nextafter(tie, 1000.0F)), (code + 1) | 0x80);
    }
}

TEST(E4m3, SaturatesAndKeepsNan) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float value : {448.0F, 464.0F, 465.0F, 1e30F, infinity}) {
        EXPECT_EQ(to_e4m3(value), 0x7e) << value;
        EXPECT_EQ(to_e4m3(-value), 0xfe) << value;
    }
    EXPECT_EQ(to_e4m3(std::numeric_limits<float>::quiet_NaN()), e4m3_nan);
    EXPECT_EQ(to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(to_e4m3(-0.0F), 0x80);
}

}  // namespace loratrain::test

#include "io/weights/mxfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace loratrain {
namespace {

constexpr std::array<float, 8> magnitudes{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};

struct Coded {
    std::array<std::uint8_t, 16> codes{};
    std::uint8_t exponent = 0;
    std::array<float, 32> values{};
};

Coded coded(const std::array<float, 32>& weights) {
    Coded result;
    result.exponent = encode_mxfp4(weights, result.codes.data());
    decode_mxfp4(result.codes.data(), result.exponent, result.values.data());
    return result;
}

/// The code of weight i.
int code_of(const Coded& coded, std::size_t i) {
    return i % 2 == 0 ? coded.codes[i / 2] & 15 : coded.codes[i / 2] >> 4;
}

TEST(Mxfp4, CodesStandForTheirNumbersTimesAPowerOfTwo) {
    for (const int exponent : {0, 1, 100, 127, 140, 252}) {
        for (int code = 0; code < 16; ++code) {
            std::array<std::uint8_t, 16> codes{};
            codes[3] = static_cast<std::uint8_t>(code << 4);
            std::array<float, 32> values{};
            decode_mxfp4(codes.data(), static_cast<std::uint8_t>(exponent), values.data());
            const double number = (code < 8 ? 1.0 : -1.0) * magnitudes[std::size_t(code) % 8];
            EXPECT_EQ(values[7], std::ldexp(number, exponent - 127)) << code << " " << exponent;
            EXPECT_EQ(std::signbit(values[7]), code >= 8);
            EXPECT_EQ(values[6], 0.0F);
        }
    }
    std::array<std::uint8_t, 16> codes{};
    std::array<float, 32> values{};
    decode_mxfp4(codes.data(), 255, values.data());
    for (const float value : values) EXPECT_TRUE(std::isnan(value));
}

/// Whatever the largest code of a block, also with a smaller exponent than the file's.
TEST(Mxfp4, WhatWasCodedComesBack) {
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        std::array<std::uint8_t, 16> codes{};
        const unsigned most = 1U + random() % 7U;
        for (std::uint8_t& both : codes) {
            const auto one = [&] { return random() % (most + 1U) + random() % 2U * 8U; };
            both = static_cast<std::uint8_t>(one() | one() << 4U);
        }
        std::array<float, 32> weights{};
        decode_mxfp4(codes.data(), static_cast<std::uint8_t>(90 + random() % 60), weights.data());
        const Coded again = coded(weights);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            ASSERT_EQ(again.values[i], weights[i]);
            ASSERT_EQ(std::signbit(again.values[i]), std::signbit(weights[i]));
        }
    }
}

TEST(Mxfp4, TheLargestWeightChoosesTheScale) {
    const auto exponent = [](float largest) {
        std::array<float, 32> weights{};
        weights[17] = -largest;
        return int{coded(weights).exponent};
    };
    EXPECT_EQ(exponent(6.0F), 127);
    EXPECT_EQ(exponent(std::nextafter(6.0F, 7.0F)), 128);
    EXPECT_EQ(exponent(std::nextafter(6.0F, 5.0F)), 127);
    EXPECT_EQ(exponent(3.0F), 126);
    EXPECT_EQ(exponent(std::nextafter(3.0F, 4.0F)), 127);
    EXPECT_EQ(exponent(12.0F), 128);
    EXPECT_EQ(exponent(0.0F), 0);
    EXPECT_EQ(exponent(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(exponent(std::numeric_limits<float>::max()), 127 + 126);
}

TEST(Mxfp4, RoundsToTheNearestAndTiesToEvenCodes) {
    std::array<float, 32> weights{};
    weights[0] = 6.0F;  // so that the scale is 1
    for (std::size_t i = 0; i < 7; ++i) {
        const float middle = (magnitudes[i] + magnitudes[i + 1]) / 2.0F;
        weights[1 + 3 * i] = std::nextafter(middle, 0.0F);
        weights[2 + 3 * i] = -middle;
        weights[3 + 3 * i] = std::nextafter(middle, 7.0F);
    }
    const Coded found = coded(weights);
    EXPECT_EQ(code_of(found, 0), 7);
    for (int i = 0; i < 7; ++i) {
        const auto at = static_cast<std::size_t>(3 * i);
        EXPECT_EQ(code_of(found, at + 1), i);
        EXPECT_EQ(code_of(found, at + 2), 8 + i + i % 2);
        EXPECT_EQ(code_of(found, at + 3), i + 1);
    }
}

}  // namespace
}  // namespace loratrain

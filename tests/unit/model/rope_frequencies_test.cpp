#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loratrain {
namespace {

TEST(RopeFrequencies, Standard) {
    const auto frequencies = rope_frequencies(RopeSpec{}, 8);
    ASSERT_EQ(frequencies.size(), 4U);
    EXPECT_FLOAT_EQ(frequencies[0], 1.0F);
    EXPECT_FLOAT_EQ(frequencies[1], 0.1F);
    EXPECT_FLOAT_EQ(frequencies[2], 0.01F);
    EXPECT_FLOAT_EQ(frequencies[3], 0.001F);
}

// transformers 5, head_dim 80, theta 100000: the power and its inverse are rounded one by one.
TEST(RopeFrequencies, RoundsAsHuggingFace) {
    RopeSpec rope;
    rope.theta = 100000.0;
    const auto frequencies = rope_frequencies(rope, 80);
    EXPECT_EQ(frequencies[22], 0x1.d22a4ap-10F);
    EXPECT_EQ(frequencies[29], 0x1.f1501ep-13F);
    EXPECT_EQ(frequencies[39], 0x1.bf7494p-17F);
}

TEST(RopeFrequencies, LinearDividesByTheFactor) {
    RopeSpec rope;
    rope.type = RopeType::linear;
    rope.factor = 4.0;
    const auto frequencies = rope_frequencies(rope, 8);
    EXPECT_FLOAT_EQ(frequencies[0], 0.25F);
    EXPECT_FLOAT_EQ(frequencies[3], 0.00025F);
}

TEST(RopeFrequencies, LongropeDividesPairByPair) {
    RopeSpec rope;
    rope.type = RopeType::longrope;
    rope.short_factors = {1.0, 1.25, 2.0, 8.0};
    rope.long_factors = {2.0, 4.0, 8.0, 16.0};
    const auto frequencies = rope_frequencies(rope, 8);
    ASSERT_EQ(std::ssize(frequencies), frequency_count(8, rope));
    EXPECT_FLOAT_EQ(frequencies[0], 1.0F);
    EXPECT_FLOAT_EQ(frequencies[1], 0.08F);
    EXPECT_FLOAT_EQ(frequencies[2], 0.005F);
    EXPECT_FLOAT_EQ(frequencies[3], 0.000125F);
    EXPECT_FLOAT_EQ(frequencies[4], 0.5F) << "of long samples";
    EXPECT_FLOAT_EQ(frequencies[7], 0.0000625F);
}

TEST(RopeFrequencies, Llama3) {
    RopeSpec rope;
    rope.type = RopeType::llama3;
    rope.theta = 500000.0;
    rope.factor = 8.0;
    rope.low_freq_factor = 1.0;
    rope.high_freq_factor = 4.0;
    rope.original_max_position = 8192;
    const auto frequencies = rope_frequencies(rope, 128);
    ASSERT_EQ(frequencies.size(), 64U);
    int kept = 0;
    int between = 0;
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
        const double base = std::pow(500000.0, -static_cast<double>(j) / 64.0);
        const double wavelength = 2.0 * std::acos(-1.0) / base;
        double expected = base;
        if (wavelength > 8192.0) {
            expected = base / 8.0;
        } else if (wavelength >= 8192.0 / 4.0) {
            const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
            expected = base * ((1.0 - smooth) / 8.0 + smooth);
            ++between;
        } else {
            ++kept;
        }
        EXPECT_NEAR(frequencies[j], expected, 1e-6 * expected) << j;
    }
    EXPECT_GT(kept, 20);
    EXPECT_GT(between, 3);
    EXPECT_FLOAT_EQ(frequencies[0], 1.0F);
}

// transformers 5.24, head_dim 128, theta 1e6, factor 4, 32768 positions: as Qwen's long contexts.
TEST(RopeFrequencies, YarnRoundsAsHuggingFace) {
    RopeSpec rope;
    rope.type = RopeType::yarn;
    rope.theta = 1000000.0;
    rope.factor = 4.0;
    rope.original_max_position = 32768;
    const auto frequencies = rope_frequencies(rope, 128);
    ASSERT_EQ(frequencies.size(), 64U);
    EXPECT_EQ(frequencies[0], 1.0F);
    EXPECT_EQ(frequencies[10], 0x1.d8ffacp-4F);
    EXPECT_EQ(frequencies[25], 0x1.0ec71p-8F);
    EXPECT_EQ(frequencies[30], 0x1.17040ep-10F);
    EXPECT_EQ(frequencies[35], 0x1.02387cp-12F);
    EXPECT_EQ(frequencies[45], 0x1.faeba8p-17F);
    EXPECT_EQ(frequencies[63], 0x1.4d1c98p-22F);
}

// The same with head_dim 64, theta 150000, factor 32, 4096 positions.
TEST(RopeFrequencies, YarnWithoutTruncation) {
    RopeSpec rope;
    rope.type = RopeType::yarn;
    rope.theta = 150000.0;
    rope.factor = 32.0;
    rope.original_max_position = 4096;
    rope.truncate = false;
    const auto frequencies = rope_frequencies(rope, 64);
    EXPECT_EQ(frequencies[12], 0x1.bd508p-8F);
    EXPECT_EQ(frequencies[20], 0x1.312650p-16F);
    EXPECT_EQ(frequencies[30], 0x1.d727d6p-22F);
}

}  // namespace
}  // namespace loratrain

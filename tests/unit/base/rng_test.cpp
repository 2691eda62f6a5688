#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace loratrain {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// Sum over the bins of (count - expected)^2 / expected.
double chi_square(const std::vector<int>& counts, double expected) {
    double sum = 0.0;
    for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
    return sum;
}

/// Six standard deviations above the mean of a chi-square with bins - 1 degrees of freedom.
double chi_square_limit(std::size_t bins) {
    const double freedom = static_cast<double>(bins) - 1.0;
    return freedom + 6.0 * std::sqrt(2.0 * freedom);
}

// The philox4x32 lines of Random123's kat_vectors.
TEST(Philox, KnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0),
              (Words{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
    EXPECT_EQ(philox4x32({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, ~0ULL),
              (Words{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
    EXPECT_EQ(
        philox4x32({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, 0x299f31d0a4093822ULL),
        (Words{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0, 7),
              (Words{0x5f6fb709U, 0x0d893f64U, 0x4f121f81U, 0x4f730a48U}));
}

TEST(Philox, WordsAreThoseOfCountersOneByOne) {
    const Words first{0xfffffff8U, 5, 6, 7};
    for (const int rounds : {7, 10}) {
        const PhiloxWords words = philox4x32_words(first, 0x299f31d0a4093822ULL, rounds);
        for (std::uint32_t i = 0; i < words[0].size(); ++i) {
            const Words alone = philox4x32({first[0] + i, 5, 6, 7}, 0x299f31d0a4093822ULL, rounds);
            for (std::size_t w = 0; w < alone.size(); ++w) EXPECT_EQ(words[w][i], alone[w]);
        }
    }
}

TEST(Philox, EveryWordOfCounterAndKeyMatters) {
    std::set<Words> seen{philox4x32({0, 0, 0, 0}, 0), philox4x32({0, 0, 0, 0}, 1),
                         philox4x32({0, 0, 0, 0}, 1ULL << 32U)};
    for (std::size_t word = 0; word < 4; ++word) {
        Words counter{};
        counter[word] = 1;
        seen.insert(philox4x32(counter, 0));
    }
    EXPECT_EQ(seen.size(), 7U);
}

// Test vectors of the FNV authors.
TEST(HashName, KnownAnswers) {
    EXPECT_EQ(hash_name(""), 0xcbf29ce484222325ULL);
    EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cULL);
    EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8ULL);
}

TEST(MixKey, DependsOnBothWordsAndTheirOrder) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t a = 0; a < 100; ++a) {
        for (std::uint64_t b = 0; b < 100; ++b) seen.insert(mix_key(a, b));
    }
    EXPECT_EQ(seen.size(), 10000U);
}

TEST(TensorKey, DependsOnSeedAdapterAndTensor) {
    const std::set<std::uint64_t> keys{tensor_key(1, "a", "x"), tensor_key(2, "a", "x"),
                                       tensor_key(1, "b", "x"), tensor_key(1, "a", "y"),
                                       tensor_key(1, "x", "a"), tensor_key(1, "ax", "")};
    EXPECT_EQ(keys.size(), 6U);
    EXPECT_EQ(tensor_key(1, "a", "x"), tensor_key(1, "a", "x"));
}

TEST(UniformFloat, StaysInRangeOnAGridOf24Bits) {
    for (std::uint64_t i = 0; i < 100000; ++i) {
        const float value = uniform_float(3, i);
        ASSERT_GE(value, 0.0F);
        ASSERT_LT(value, 1.0F);
        const float steps = value * 0x1p24F;
        ASSERT_EQ(steps, std::floor(steps));
    }
}

TEST(UniformFloat, IsUniform) {
    constexpr int samples = 1 << 18;
    std::vector<int> counts(256, 0);
    for (std::uint64_t i = 0; i < samples; ++i) {
        ++counts[static_cast<std::size_t>(uniform_float(42, i) * 256.0F)];
    }
    EXPECT_LT(chi_square(counts, samples / 256.0), chi_square_limit(counts.size()));
}

TEST(UniformFloat, NeighboursAndStreamsAreIndependent) {
    constexpr int samples = 1 << 16;
    std::vector<int> neighbours(256, 0);
    std::vector<int> streams(256, 0);
    for (std::uint64_t i = 0; i < samples; ++i) {
        const auto bin = [](float value) { return static_cast<std::size_t>(value * 16.0F); };
        ++neighbours[16 * bin(uniform_float(5, i)) + bin(uniform_float(5, i + 1))];
        ++streams[16 * bin(uniform_float(5, i)) + bin(uniform_float(6, i))];
    }
    EXPECT_LT(chi_square(neighbours, samples / 256.0), chi_square_limit(256));
    EXPECT_LT(chi_square(streams, samples / 256.0), chi_square_limit(256));
}

TEST(UniformFloat, UsesAllBitsOfTheIndex) {
    std::set<float> seen;
    for (int bit = 0; bit < 64; ++bit)
        seen.insert(uniform_float(9, 1ULL << static_cast<unsigned>(bit)));
    seen.insert(uniform_float(9, 0));
    EXPECT_EQ(seen.size(), 65U);
}

TEST(UniformFloats, AreThoseOfOneByOne) {
    constexpr float untouched = -7.0F;
    for (const std::uint64_t first :
         {UINT64_C(0), UINT64_C(3), UINT64_C(64), (UINT64_C(1) << 34U) - 70}) {
        for (const std::size_t count : {0U, 1U, 63U, 64U, 200U, 1300U}) {
            std::vector<float> uniform(count + 1, untouched);
            std::vector<float> normal(count + 1, untouched);
            uniform_floats(11, first, std::span(uniform).first(count));
            normal_floats(11, first, std::span(normal).first(count));
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(uniform[i], uniform_float(11, first + i)) << first << " + " << i;
                ASSERT_EQ(normal[i], normal_float(11, first + i)) << first << " + " << i;
            }
            EXPECT_EQ(uniform.back(), untouched);
            EXPECT_EQ(normal.back(), untouched);
        }
    }
}

TEST(UniformInt, IsUniformAndBelowTheBound) {
    constexpr int samples = 70000;
    std::vector<int> counts(7, 0);
    for (std::uint64_t i = 0; i < samples; ++i) {
        const std::uint64_t value = uniform_int(1, i, 7);
        ASSERT_LT(value, 7U);
        ++counts[value];
    }
    EXPECT_LT(chi_square(counts, samples / 7.0), chi_square_limit(counts.size()));
}

TEST(UniformInt, WorksForSmallAndHugeBounds) {
    constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t largest = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        EXPECT_EQ(uniform_int(1, i, 1), 0U);
        ASSERT_LT(uniform_int(1, i, huge), huge);
        largest = std::max(largest, uniform_int(1, i, huge));
    }
    EXPECT_GT(largest, huge / 100 * 98);
}

TEST(Dropout, ThresholdAndScaleBelongTogether) {
    EXPECT_EQ(dropout_threshold(0.0), 0U);
    EXPECT_EQ(dropout_threshold(0.5), 16384U);
    EXPECT_EQ(dropout_threshold(0.1), 3277U);
    EXPECT_EQ(dropout_threshold(largest_dropout), 0x7c00U);  // infinity in fp16
    EXPECT_EQ(dropout_scale(0), 1.0F);
    EXPECT_EQ(dropout_scale(16384), 2.0F);
    EXPECT_FLOAT_EQ(dropout_scale(3277), 32768.0F / 29491.0F);
}

TEST(Dropout, DropsTheExpectedShare) {
    const std::uint32_t threshold = dropout_threshold(0.1);
    constexpr int blocks = 20000;
    int dropped = 0;
    for (std::uint32_t i = 0; i < blocks; ++i) {
        for (const std::uint32_t word : dropout_bits(77, 3, i / 100, i % 100, 5)) {
            dropped += static_cast<int>((word & 0xffffU) < threshold);
            dropped += static_cast<int>((word >> 16U) < threshold);
        }
    }
    const double p = threshold / 32768.0;
    const double deviation = std::sqrt(8.0 * blocks * p * (1.0 - p));
    EXPECT_NEAR(dropped, 8.0 * blocks * p, 5.0 * deviation);
}

TEST(Dropout, BitsDependOnStepSamplePositionAndColumns) {
    const std::set<Words> seen{dropout_bits(1, 0, 0, 0, 0), dropout_bits(1, 1, 0, 0, 0),
                               dropout_bits(1, 0, 1, 0, 0), dropout_bits(1, 0, 0, 1, 0),
                               dropout_bits(1, 0, 0, 0, 1), dropout_bits(2, 0, 0, 0, 0)};
    EXPECT_EQ(seen.size(), 6U);
}

constexpr RandomMatrix random_case{0x123456789abcdefULL, 1.0F, 0.1F};

std::vector<float> filled(const RandomMatrix& random, std::int64_t rows, std::int64_t cols) {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    fill_random_rows(random, 0, matrix(values.data(), DType::f32, rows, cols));
    return values;
}

TEST(RandomMatrix, FollowsItsFormula) {
    constexpr std::uint32_t cols = 275;
    const std::vector<float> values = filled(random_case, 5, cols);
    for (std::uint32_t row = 0; row < 5; ++row) {
        for (std::uint32_t col = 0; col < cols; ++col) {
            const auto words = philox4x32({col / 8, row, 0, 0}, random_case.key);
            const std::uint32_t pair = words[col % 8 / 2];
            const double bits = col % 2 == 0 ? pair & 0xffffU : pair >> 16U;
            const double exact = 1.0 + static_cast<double>(0.1F) * ((bits + 0.5) / 32768.0 - 1.0);
            EXPECT_EQ(values[row * cols + col], static_cast<float>(exact));
        }
    }
}

TEST(RandomMatrix, SlicesAndPaddedRowsAreThoseOfTheWhole) {
    const std::vector<float> whole = filled(random_case, 6, 11);
    std::vector<float> slice(3 * 13, -7.0F);
    fill_random_rows(random_case, 2, {slice.data(), DType::f32, 3, 11, 13});
    for (std::size_t i = 0; i < slice.size(); ++i) {
        EXPECT_EQ(slice[i], i % 13 < 11 ? whole[(2 + i / 13) * 11 + i % 13] : -7.0F);
    }
}

TEST(RandomMatrix, StoresBf16Rounded) {
    const std::vector<float> whole = filled(random_case, 4, 9);
    std::vector<BFloat16> narrow(whole.size());
    fill_random_rows(random_case, 0, matrix(narrow.data(), DType::bf16, 4, 9));
    for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(narrow[i].bits, to_bfloat16(whole[i]).bits);
    }
}

TEST(RandomMatrix, IsUniformAndDependsOnTheKey) {
    RandomMatrix random = random_case;
    random.center = 0.0F;
    random.half_width = 1.0F;
    const std::vector<float> values = filled(random, 64, 512);
    double sum = 0.0;
    double squares = 0.0;
    for (const float value : values) {
        EXPECT_LT(std::fabs(value), 1.0F);
        sum += value;
        squares += static_cast<double>(value) * value;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, 0.0, 0.02);
    EXPECT_NEAR(squares / count, 1.0 / 3.0, 0.01);
    ++random.key;
    EXPECT_NE(filled(random, 64, 512), values);
}

}  // namespace
}  // namespace loratrain

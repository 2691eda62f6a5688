#include "base/random_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace loratrain {
namespace {

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

#include "base/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace loratrain {
namespace {

float float_of_bits(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

double bfloat_value(std::uint32_t bits) {
    return static_cast<double>(to_float({static_cast<std::uint16_t>(bits)}));
}

/// Round to nearest even by comparing distances to the two neighbours, in double precision; a
/// magnitude of half a step or more beyond the largest bfloat16 becomes infinite.
std::uint16_t rounded_plainly(float value) {
    const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
    const double magnitude = std::fabs(static_cast<double>(value));
    std::uint32_t low = 0;
    std::uint32_t high = 0x7f80U;
    while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        (bfloat_value(middle) <= magnitude ? low : high) = middle;
    }
    const double above = high == 0x7f80U ? std::ldexp(1.0, 128) : bfloat_value(high);
    const double below_distance = magnitude - bfloat_value(low);
    const double above_distance = above - magnitude;
    const bool up =
        above_distance < below_distance || (above_distance == below_distance && (high & 1U) == 0);
    return static_cast<std::uint16_t>(sign | (up ? high : low));
}

TEST(DType, SizesAndNames) {
    EXPECT_EQ(size_of(DType::f32), 4U);
    EXPECT_EQ(size_of(DType::bf16), 2U);
    EXPECT_EQ(to_string(DType::f32), "fp32");
    EXPECT_EQ(to_string(DType::bf16), "bf16");
}

TEST(BFloat16, KnownValues) {
    EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3f80);
    EXPECT_EQ(to_bfloat16(-2.0F).bits, 0xc000);
    EXPECT_EQ(to_bfloat16(0.0F).bits, 0x0000);
    EXPECT_EQ(to_bfloat16(-0.0F).bits, 0x8000);
    EXPECT_EQ(to_bfloat16(3.14159274F).bits, 0x4049);
    EXPECT_EQ(to_float({0x4049}), 3.140625F);
}

TEST(BFloat16, EveryFiniteNumberSurvivesTheRoundTrip) {
    for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
        const BFloat16 value{static_cast<std::uint16_t>(bits)};
        if (std::isnan(to_float(value))) continue;
        ASSERT_EQ(to_bfloat16(to_float(value)).bits, value.bits);
    }
}

TEST(BFloat16, TiesGoToTheEvenNeighbour) {
    EXPECT_EQ(to_bfloat16(float_of_bits(0x3f808000U)).bits, 0x3f80);
    EXPECT_EQ(to_bfloat16(float_of_bits(0x3f818000U)).bits, 0x3f82);
    EXPECT_EQ(to_bfloat16(float_of_bits(0x3f808001U)).bits, 0x3f81);
    EXPECT_EQ(to_bfloat16(float_of_bits(0x3f817fffU)).bits, 0x3f81);
}

TEST(BFloat16, RoundsLikeThePlainFormula) {
    for (std::uint64_t i = 0; i < 200000; ++i) {
        const std::uint32_t bits = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, 11)[0];
        const float value = float_of_bits(bits);
        if (!std::isfinite(value)) continue;
        ASSERT_EQ(to_bfloat16(value).bits, rounded_plainly(value)) << std::hex << bits;
    }
}

TEST(BFloat16, RoundsEveryMidpointLikeThePlainFormula) {
    for (std::uint32_t upper = 0; upper < 0x7f80U; ++upper) {
        for (const std::uint32_t lower : {0x7fffU, 0x8000U, 0x8001U}) {
            const float value = float_of_bits((upper << 16U) | lower);
            ASSERT_EQ(to_bfloat16(value).bits, rounded_plainly(value)) << std::hex << upper;
        }
    }
}

TEST(BFloat16, LargestFloatBecomesInfinite) {
    EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
    EXPECT_EQ(to_bfloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(BFloat16, NanStaysNan) {
    for (const std::uint32_t bits :
         {0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffffffffU, 0x7fc00000U}) {
        EXPECT_TRUE(std::isnan(to_float(to_bfloat16(float_of_bits(bits))))) << std::hex << bits;
    }
}

TEST(Shape, CountsElements) {
    EXPECT_EQ(element_count({}), 1);
    EXPECT_EQ(element_count({7}), 7);
    EXPECT_EQ(element_count({3, 0}), 0);
    EXPECT_EQ(element_count({1 << 20, 1 << 20}), std::int64_t{1} << 40U);
}

TEST(Shape, IsWrittenAsAList) {
    EXPECT_EQ(shape_text({3, 5}), "[3, 5]");
    EXPECT_EQ(shape_text({}), "[]");
}

TEST(TensorView, MatrixIsDense) {
    std::array<float, 12> data{};
    const TensorView view = matrix(data.data(), DType::f32, 3, 4);
    EXPECT_EQ(view.data, data.data());
    EXPECT_EQ(view.rows, 3);
    EXPECT_EQ(view.cols, 4);
    EXPECT_EQ(view.ld, 4);
    EXPECT_EQ(view.numel(), 12);
    EXPECT_EQ(view.element_size(), 4U);
    EXPECT_EQ(view.f32(), data.data());
}

TEST(TensorView, OffsetCountsElementsOfItsType) {
    std::array<std::uint16_t, 12> data{};
    const TensorView view = matrix(data.data(), DType::bf16, 3, 4);
    EXPECT_EQ(view.offset(0, 0), &data[0]);
    EXPECT_EQ(view.offset(2, 1), &data[9]);
}

TEST(TensorView, RowRangeKeepsColumnsAndStride) {
    std::array<float, 20> data{};
    const TensorView view{data.data(), DType::f32, 4, 3, 5};
    const TensorView rows = view.row_range(1, 2);
    EXPECT_EQ(rows.data, &data[5]);
    EXPECT_EQ(rows.rows, 2);
    EXPECT_EQ(rows.cols, 3);
    EXPECT_EQ(rows.ld, 5);
}

TEST(TensorView, ColumnRangeOfARowRangeAddressesTheBlock) {
    std::array<float, 20> data{};
    const TensorView view{data.data(), DType::f32, 4, 5, 5};
    const TensorView block = view.row_range(2, 2).col_range(3, 2);
    EXPECT_EQ(block.data, &data[13]);
    EXPECT_EQ(block.rows, 2);
    EXPECT_EQ(block.cols, 2);
    EXPECT_EQ(block.ld, 5);
    EXPECT_EQ(block.offset(1, 1), &data[19]);
    EXPECT_EQ(block.numel(), 4);
}

TEST(TensorView, EmptyRangesAreAllowed) {
    std::array<float, 4> data{};
    const TensorView view = matrix(data.data(), DType::f32, 2, 2);
    EXPECT_EQ(view.row_range(2, 0).numel(), 0);
    EXPECT_EQ(view.col_range(0, 0).numel(), 0);
}

TEST(TensorView, CountsBeyond32Bits) {
    EXPECT_EQ(matrix(nullptr, DType::f32, 1 << 20, 1 << 20).numel(), 1LL << 40);
}

}  // namespace
}  // namespace loratrain

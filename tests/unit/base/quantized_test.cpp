#include "base/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/e4m3.h"

namespace loratrain {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Nf4, CodesChangeAboveTheMiddleOfNeighbours) {
    for (std::uint8_t code = 0; code < 16; ++code) EXPECT_EQ(to_nf4(nf4_table[code]), code);
    for (std::uint8_t code = 0; code < 15; ++code) {
        const float middle = (nf4_table[code] + nf4_table[code + 1U]) / 2.0F;
        EXPECT_EQ(to_nf4(middle), code);
        EXPECT_EQ(to_nf4(std::nextafter(middle, -infinity)), code);
        EXPECT_EQ(to_nf4(std::nextafter(middle, infinity)), code + 1);
    }
    // A bound that bitsandbytes has as a literal.
    EXPECT_EQ((nf4_table[7] + nf4_table[8]) / 2.0F, 0.03979014977812767F);
}

TEST(Quantized, SourceTypesRoundToNearestEven) {
    EXPECT_EQ(rounded_to(SourceType::f32, 0.1F), 0.1F);
    EXPECT_EQ(rounded_to(SourceType::bf16, 1.00390625F), 1.0F);       // tie
    EXPECT_EQ(rounded_to(SourceType::bf16, 1.01171875F), 1.015625F);  // tie
    EXPECT_EQ(rounded_to(SourceType::f16, 1.0F + 0x1p-11F), 1.0F);
    EXPECT_EQ(rounded_to(SourceType::f16, 1.0F + 0x3p-11F), 1.0F + 0x1p-9F);
    EXPECT_EQ(rounded_to(SourceType::f16, -0x1.8p-24F), -0x1p-23F);
    EXPECT_EQ(rounded_to(SourceType::f16, 0x1p-25F), 0.0F);
    EXPECT_EQ(rounded_to(SourceType::f16, 65519.0F), 65504.0F);
    EXPECT_EQ(rounded_to(SourceType::f16, -65520.0F), -infinity);
}

struct Row {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    std::vector<float> weights;
};

Row quantized(WeightFormat format, SourceType source, const std::vector<float>& values) {
    const WeightTraits& traits = traits_of(format);
    const auto cols = static_cast<std::int64_t>(values.size());
    Row row;
    row.codes.resize(code_bytes(traits, cols));
    row.scales.resize(static_cast<std::size_t>(scale_count(traits, cols)));
    row.weights.resize(values.size());
    quantize_row(format, values, row.codes.data(), row.scales.data());
    effective_row({format, source, row.codes.data(), row.scales.data(), 1, cols, cols}, 0,
                  row.weights.data());
    return row;
}

TEST(Quantized, Nf4PacksTheFirstWeightHighAndScalesBlocks) {
    std::vector<float> values(192, 0.0F);
    for (std::size_t i = 0; i < 16; ++i) values[i] = 3.0F * nf4_table[i];
    values[128] = -0.5F;
    const Row row = quantized(WeightFormat::nf4, SourceType::f32, values);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(row.codes[i], 32 * i + 2 * i + 1);
    EXPECT_EQ(row.codes[32], 0x77);  // a block of zeros
    EXPECT_EQ(row.codes[64], 0x07);
    EXPECT_EQ(row.scales, (std::vector<float>{3.0F, 0.0F, 0.5F}));
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(row.weights[i],
                  nf4_table[row.codes[i / 2] >> (i % 2 == 0 ? 4U : 0U) & 15U] * row.scales[i / 64]);
    }
    const Row bf16 = quantized(WeightFormat::nf4, SourceType::bf16, values);
    EXPECT_EQ(bf16.weights[1], to_float(to_bfloat16(3.0F * nf4_table[1])));
}

TEST(Quantized, Int8AndE4m3ScaleRows) {
    const std::vector<float> values{1.0F, -2.0F, 0.5F, 0.0F, 0.013F};
    const Row int8 = quantized(WeightFormat::int8, SourceType::f32, values);
    EXPECT_EQ(int8.scales, std::vector<float>{2.0F});
    EXPECT_EQ(static_cast<std::int8_t>(int8.codes[0]), 64);  // 63.5, to even
    EXPECT_EQ(static_cast<std::int8_t>(int8.codes[1]), -127);
    EXPECT_EQ(static_cast<std::int8_t>(int8.codes[2]), 32);
    EXPECT_EQ(int8.weights[2], 32.0F * 2.0F * int8_step);
    const Row e4m3 = quantized(WeightFormat::e4m3, SourceType::f32, values);
    EXPECT_EQ(e4m3.scales, std::vector<float>{2.0F / 448.0F});
    EXPECT_EQ(e4m3.codes[1], 0xfe);
    EXPECT_EQ(e4m3.codes[3], 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(int8.weights[i], values[i], 2.0 / 254.0 * 1.001);
        EXPECT_NEAR(e4m3.weights[i], values[i], std::abs(values[i]) / 16.0 + 1e-5);
    }
    const std::vector<float> zeros(7, 0.0F);
    EXPECT_EQ(quantized(WeightFormat::int8, SourceType::f32, zeros).weights, zeros);
    EXPECT_EQ(quantized(WeightFormat::e4m3, SourceType::f32, zeros).weights, zeros);
    EXPECT_EQ(quantized(WeightFormat::e4m3, SourceType::f32, zeros).scales[0], 1.0F);
}

TEST(Quantized, BlocksOfE4m3AreAsLongAsTheirScalesSay) {
    const std::vector<std::uint8_t> codes(300, to_e4m3(1.5F));
    const std::vector<float> scales{2.0F, 4.0F, 8.0F};
    std::vector<float> weights(300);
    effective_row(
        {WeightFormat::e4m3_block, SourceType::bf16, codes.data(), scales.data(), 1, 300, 300}, 0,
        weights.data());
    EXPECT_EQ(weights[127], 3.0F);
    EXPECT_EQ(weights[128], 6.0F);
    EXPECT_EQ(weights[299], 12.0F);
}

}  // namespace
}  // namespace loratrain

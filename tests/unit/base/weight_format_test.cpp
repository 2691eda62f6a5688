#include "base/weight_format.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

/// Two codes a byte, blocks of 64 with a scale of one byte.
constexpr WeightTraits packed{"packed", 4, 64, 1, std::nullopt};

TEST(WeightFormat, NamesAndTypes) {
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
        const WeightTraits& traits = traits_of(format);
        EXPECT_EQ(weight_format(traits.name), format);
        ASSERT_TRUE(traits.dense);
        EXPECT_EQ(traits.name, to_string(*traits.dense));
        EXPECT_EQ(code_bytes(traits, 7), 7 * size_of(*traits.dense));
        EXPECT_EQ(scale_bytes(traits, 7), 0U);
    }
    EXPECT_FALSE(weight_format("packed"));
}

TEST(WeightFormat, QuantisedFormats) {
    for (const char* name : {"nf4", "int8", "e4m3", "e4m3_block"}) {
        const auto format = weight_format(name);
        ASSERT_TRUE(format) << name;
        EXPECT_FALSE(traits_of(*format).dense);
    }
    EXPECT_EQ(weight_layout(traits_of(WeightFormat::nf4), {16, 128}).scales, 1024U);
    EXPECT_EQ(weight_layout(traits_of(WeightFormat::nf4), {16, 128}).bytes, 1280U);  // 16 x 2 x 4
    EXPECT_EQ(scale_count(traits_of(WeightFormat::int8), 28672), 1);
    EXPECT_EQ(scale_count(traits_of(WeightFormat::e4m3_block), 129), 2);
    EXPECT_EQ(source_type("fp16"), SourceType::f16);
    EXPECT_FALSE(source_type("fp8"));
}

TEST(WeightFormat, GemmsReadTheirOwnTypeAlone) {
    EXPECT_TRUE(gemm_reads(traits_of(WeightFormat::f32), DType::f32));
    EXPECT_TRUE(gemm_reads(traits_of(WeightFormat::bf16), DType::bf16));
    EXPECT_FALSE(gemm_reads(traits_of(WeightFormat::bf16), DType::f32));
    EXPECT_FALSE(gemm_reads(traits_of(WeightFormat::f32), DType::bf16));
    EXPECT_FALSE(gemm_reads(packed, DType::f32));
    EXPECT_FALSE(gemm_reads(packed, DType::bf16));
}

TEST(WeightFormat, LayoutOfDenseCodes) {
    EXPECT_EQ(weight_layout(traits_of(WeightFormat::f32), {10, 20}).bytes, 1024U);  // 800
    EXPECT_EQ(weight_layout(traits_of(WeightFormat::bf16), {10, 20}).bytes, 512U);  // 400
    EXPECT_EQ(weight_layout(traits_of(WeightFormat::bf16), {16, 8}).bytes, 256U);
}

TEST(WeightFormat, LayoutOfCodesAndScales) {
    EXPECT_EQ(code_bytes(packed, 192), 96U);
    EXPECT_EQ(code_bytes(packed, 3), 2U);
    EXPECT_EQ(scale_bytes(packed, 192), 3U);
    EXPECT_EQ(scale_bytes(packed, 193), 4U);
    const WeightLayout layout = weight_layout(packed, {100, 192});
    EXPECT_EQ(layout.scales, 9728U);        // 9600
    EXPECT_EQ(layout.bytes, 9728U + 512U);  // 300
}

}  // namespace
}  // namespace loratrain

#include "base/dynamic_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace loratrain {
namespace {

std::vector<float> values_of_size(std::size_t count, std::uint64_t seed, float scale,
                                  bool positive) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const float value = normal_float(seed, i) * scale;
        values[i] = positive ? value * value : value;
    }
    return values;
}

std::vector<float> numbers_of(const DynamicMap& map, const std::vector<std::uint8_t>& codes,
                              float scale) {
    std::vector<float> values(codes.size());
    decode_block(map, codes, scale, values.data());
    return values;
}

/// Numbers of create_dynamic_map of bitsandbytes 0.50.2, and their sums in fp64.
TEST(DynamicMap, IsThatOfBitsandbytes) {
    const DynamicMap& with_signs = signed_dynamic_map();
    const DynamicMap& without = unsigned_dynamic_map();
    EXPECT_TRUE(std::is_sorted(with_signs.begin(), with_signs.end()));
    EXPECT_TRUE(std::is_sorted(without.begin(), without.end()));
    EXPECT_EQ(with_signs.front(), -0x1.fc66660000000p-1F);
    EXPECT_EQ(with_signs[1], -0x1.f533340000000p-1F);
    EXPECT_EQ(with_signs[64], -0x1.93d70a0000000p-4F);
    EXPECT_EQ(with_signs[100], -0x1.e978d40000000p-8F);
    EXPECT_EQ(with_signs[127], 0x0.0p+0F);
    EXPECT_EQ(with_signs[128], 0x1.27476e0000000p-21F);
    EXPECT_EQ(with_signs[200], 0x1.de66660000000p-3F);
    EXPECT_EQ(with_signs[254], 0x1.fc66660000000p-1F);
    EXPECT_EQ(with_signs[255], 0x1.0000000000000p+0F);
    double sum_with_signs = 0.0;
    for (const float number : with_signs) sum_with_signs += number * (1.0 + number);
    EXPECT_NEAR(sum_with_signs, 49.595837667290155, 1e-9);
    EXPECT_EQ(without[1], 0x1.5cf7540000000p-22F);
    EXPECT_EQ(without[64], 0x1.8cccce0000000p-7F);
    EXPECT_EQ(without[100], 0x1.00f5c40000000p-4F);
    EXPECT_EQ(without[127], 0x1.a800000000000p-4F);
    EXPECT_EQ(without[128], 0x1.c4cccc0000000p-4F);
    EXPECT_EQ(without[200], 0x1.3bcccc0000000p-1F);
    EXPECT_EQ(without[254], 0x1.fe33340000000p-1F);
    EXPECT_EQ(without[255], 0x1.0000000000000p+0F);
    double sum_without = 0.0;
    for (const float number : without) sum_without += number * (1.0 + number);
    EXPECT_NEAR(sum_without, 123.70271534848783, 1e-9);
}

/// Against all 256, by distance in fp64; fp32 may take the neighbour where both are as near.
TEST(DynamicMap, CodesAreNearest) {
    for (const DynamicMap* map : {&signed_dynamic_map(), &unsigned_dynamic_map()}) {
        for (std::uint64_t i = 0; i < 4000; ++i) {
            const float x =
                (2.0F * uniform_float(3, i) - 1.0F) * std::pow(10.0F, -7.0F * uniform_float(4, i));
            double least = 2.0;
            for (const float number : *map) {
                least = std::min(least, std::fabs(static_cast<double>(number) - x));
            }
            const float found = (*map)[dynamic_code(*map, x)];
            EXPECT_LE(std::fabs(static_cast<double>(found) - x), least * (1 + 1e-5) + 1e-9) << x;
        }
        for (std::size_t code = 0; code < map->size(); ++code) {
            EXPECT_EQ(dynamic_code(*map, (*map)[code]), code);
        }
    }
}

TEST(DynamicMap, WhatIsDecodedComesBack) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        for (const bool positive : {false, true}) {
            const DynamicMap& map = positive ? unsigned_dynamic_map() : signed_dynamic_map();
            const std::size_t count = seed % 3 == 0 ? 256 : 1 + seed % 255;
            std::vector<float> values = values_of_size(
                count, seed, std::pow(10.0F, -static_cast<float>(seed % 20)), positive);
            if (!positive && seed % 2 == 0)
                values[count / 2] = -10.0F * std::fabs(values[0]) - 1e-18F;
            std::vector<std::uint8_t> codes(count);
            const float scale = encode_block(map, values, codes.data());
            const std::vector<float> once = numbers_of(map, codes, scale);
            std::vector<std::uint8_t> again(count);
            const float other = encode_again(map, once, again.data());
            EXPECT_EQ(numbers_of(map, again, other), once) << seed;
        }
    }
    const std::vector<float> zeros(256, 0.0F);
    std::vector<std::uint8_t> codes(256);
    const float scale = encode_again(signed_dynamic_map(), zeros, codes.data());
    EXPECT_EQ(scale, 0.0F);
    EXPECT_EQ(numbers_of(signed_dynamic_map(), codes, scale), zeros);
}

}  // namespace
}  // namespace loratrain

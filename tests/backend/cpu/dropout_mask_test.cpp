#include "backend/cpu/dropout_mask.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace loratrain {
namespace {

float expected_value(const DropoutRow& row, std::int64_t col, float x) {
    const auto words = dropout_bits(row.key, row.step, row.sample, row.position,
                                    static_cast<std::uint32_t>(col / 8));
    const std::uint32_t word = words[col % 8 / 2];
    const std::uint32_t bits = col % 2 == 0 ? word & 0xffffU : word >> 16U;
    return bits < row.threshold ? 0.0F : x * dropout_scale(row.threshold);
}

TEST(DropoutMask, BitsAreThoseOfBaseRng) {
    for (const std::uint32_t threshold : {1U, 3277U, 16384U, 31744U}) {
        const DropoutRow row{0x123456789abcdefULL, 77, 4000000000U, 8191, threshold};
        for (const std::int64_t first : {0, 8, 512, 28672}) {
            for (const std::int64_t count : {1, 7, 8, 127, 128, 129, 512}) {
                std::vector<float> x(count);
                for (std::int64_t j = 0; j < count; ++j) x[j] = 1.0F + static_cast<float>(j);
                std::vector<float> dropped(count + 1, -1.0F);
                std::vector<float> added(count + 1, 0.5F);
                drop_row(row, first, count, x.data(), dropped.data());
                add_dropped_row(row, first, count, x.data(), added.data());
                for (std::int64_t j = 0; j < count; ++j) {
                    const float expected = expected_value(row, first + j, x[j]);
                    ASSERT_EQ(dropped[j], expected) << first + j;
                    ASSERT_NEAR(added[j], 0.5F + expected, 1e-6F * (1.0F + expected)) << first + j;
                }
                EXPECT_EQ(dropped[count], -1.0F);
                EXPECT_EQ(added[count], 0.5F);
            }
        }
    }
}

}  // namespace
}  // namespace loratrain

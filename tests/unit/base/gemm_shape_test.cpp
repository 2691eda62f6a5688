#include "base/gemm_shape.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(GemmShape, ByHand) {
    const auto expect = [](std::int64_t size, std::int64_t smallest, std::int64_t largest) {
        EXPECT_EQ(sizes_alike(size).smallest, smallest) << size;
        EXPECT_EQ(sizes_alike(size).largest, largest) << size;
    };
    expect(1, 1, 64);
    expect(64, 1, 64);
    expect(65, 65, 128);
    expect(961, 961, 1024);
    expect(1024, 961, 1024);
    expect(1025, 1025, 1088);
    expect(2049, 2049, 2176);
    expect(7100, 6913, 7168);
    expect(8192, 7937, 8192);
}

TEST(GemmShape, EverySizeIsInOneRangeOfAtMostATileOrASixteenth) {
    std::int64_t last = 0;
    while (last < 100000) {
        const SizesAlike range = sizes_alike(last + 1);
        ASSERT_EQ(range.smallest, last + 1);
        ASSERT_LE(range.largest - last, std::max<std::int64_t>(64, last / 16 + 1));
        for (const std::int64_t size :
             {range.smallest, (range.smallest + range.largest) / 2, range.largest}) {
            ASSERT_EQ(sizes_alike(size).smallest, range.smallest);
            ASSERT_EQ(sizes_alike(size).largest, range.largest);
        }
        last = range.largest;
    }
}

}  // namespace
}  // namespace loratrain

#include "base/gemm_shape.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

using Alike = SizesAlike (*)(std::int64_t);

void expect(Alike alike, std::int64_t size, std::int64_t smallest, std::int64_t largest) {
    EXPECT_EQ(alike(size).smallest, smallest) << size;
    EXPECT_EQ(alike(size).largest, largest) << size;
}

void expect_one_class_of_each(Alike alike, std::int64_t most) {
    for (std::int64_t last = 0; last < most;) {
        const SizesAlike range = alike(last + 1);
        ASSERT_EQ(range.smallest, last + 1);
        ASSERT_GE(range.largest, range.smallest);
        for (const std::int64_t size :
             {range.smallest, (range.smallest + range.largest) / 2, range.largest}) {
            ASSERT_EQ(alike(size).smallest, range.smallest) << size;
            ASSERT_EQ(alike(size).largest, range.largest) << size;
        }
        last = range.largest;
    }
}

TEST(GemmShape, RowsByHand) {
    expect(rows_alike, 1, 1, 64);
    expect(rows_alike, 64, 1, 64);
    expect(rows_alike, 65, 65, 128);
    expect(rows_alike, 1024, 961, 1024);
    expect(rows_alike, 1025, 1025, 1152);
    expect(rows_alike, 2049, 2049, 2304);
    expect(rows_alike, 4096, 3841, 4096);
    expect(rows_alike, 4097, 4097, 5120);
    expect(rows_alike, 7100, 6145, 7168);
    expect(rows_alike, 8192, 7169, 8192);
    expect(rows_alike, 8193, 8193, 10240);
    expect(rows_alike, 14337, 14337, 16384);
    expect(rows_alike, 16385, 14337, 16384);
    expect(rows_alike, 1000000, 14337, 16384);
}

TEST(GemmShape, ColumnsByHand) {
    expect(columns_alike, 1, 1, 64);
    expect(columns_alike, 65, 65, 128);
    expect(columns_alike, 256, 193, 256);
    expect(columns_alike, 257, 257, 512);
    expect(columns_alike, 4096, 3841, 4096);
    expect(columns_alike, 4097, 4097, 4352);
}

TEST(GemmShape, EverySizeIsInOneClass) {
    expect_one_class_of_each(rows_alike, 16384);
    expect_one_class_of_each(columns_alike, 20000);
}

TEST(GemmShape, ClassesOfRowsAreATileOrAtMostAQuarterWideAndFew) {
    int classes = 0;
    for (std::int64_t last = 0; last < 16384; last = rows_alike(last + 1).largest) {
        const SizesAlike range = rows_alike(last + 1);
        const auto width = static_cast<double>(range.largest - last);
        EXPECT_LE(width, std::max(64.0, 0.25 * static_cast<double>(last))) << range.largest;
        EXPECT_EQ(range.largest % 64, 0);
        ++classes;
    }
    EXPECT_EQ(classes, 40);
}

TEST(GemmShape, PowersOfTwoAreTimed) {
    for (std::int64_t rows = 64; rows <= 16384; rows *= 2) {
        EXPECT_EQ(rows_alike(rows).largest, rows);
    }
}

TEST(GemmShape, AMatrixWithLoraColumnsChangesItsClassWithTheirs) {
    for (const std::int64_t matrix : {2048, 4096, 14336}) {
        for (const std::int64_t columns : {0, 1, 64, 256, 257, 1000}) {
            EXPECT_EQ(columns_alike(matrix + columns).largest,
                      matrix + lora_columns_alike(columns));
        }
    }
    EXPECT_EQ(lora_columns_alike(0), 0);
    EXPECT_EQ(lora_columns_alike(1), 256);
    EXPECT_EQ(lora_columns_alike(257), 512);
}

}  // namespace
}  // namespace loratrain

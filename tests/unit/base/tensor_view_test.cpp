#include "base/tensor_view.h"

#include <gtest/gtest.h>

#include <array>

namespace loratrain {
namespace {

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

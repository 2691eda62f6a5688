#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class RowsTest : public BackendTest {};

HostMatrix rounded(HostMatrix x, DType dtype) {
    for (double& value : x.values) value = reference::rounded_to(dtype, value);
    return x;
}

TEST_P(RowsTest, CopyConvertsBetweenTypesAndStrides) {
    for (const DType from : {DType::f32, DType::bf16}) {
        for (const DType to : {DType::f32, DType::bf16}) {
            for (const std::int64_t cols : {1, 17, 5000}) {
                const HostMatrix x = reference::random_matrix(9, cols, 1, from);
                const DeviceMatrix source(backend(), x, 3, from);
                const DeviceMatrix target(backend(), HostMatrix(9, cols), 8, to);
                backend().copy({target.view(), source.view()});
                EXPECT_EQ(target.download().values, rounded(x, to).values);
            }
        }
    }
    const DeviceMatrix empty(backend(), HostMatrix(0, 4));
    backend().copy({empty.view(), empty.view()});
}

TEST_P(RowsTest, CopyHeadsLeavesWhatIsBetween) {
    for (const std::int64_t width : {3, 64}) {
        const HostMatrix x = random(9, 5 * 2 * width, 1);
        const HostMatrix before = random(9, 5 * width + 7, 2);
        const DeviceMatrix apart(backend(), x, 8);
        const DeviceMatrix close(backend(), before, 3);
        backend().copy_heads(
            {close.view(), apart.view().col_range(width, 9 * width), 5, width, width, 2 * width});
        HostMatrix expected = before;
        HostMatrix back = x;
        for (std::int64_t t = 0; t < 9; ++t) {
            for (std::int64_t i = 0; i < 5 * width; ++i) {
                expected(t, i) = x(t, i / width * 2 * width + width + i % width);
                back(t, i / width * 2 * width + i % width) = expected(t, i);
            }
        }
        EXPECT_EQ(close.download().values, expected.values);
        backend().copy_heads({apart.view(), close.view(), 5, width, 2 * width, width});
        EXPECT_EQ(apart.download().values, back.values);
    }
}

TEST_P(RowsTest, CopyHeadsGivesAllHeadsTheSame) {
    for (const std::int64_t width : {3, 64}) {
        const HostMatrix x = random(9, width, 1);
        const HostMatrix before = random(9, 5 * 2 * width, 2);
        const DeviceMatrix one(backend(), x, 8);
        const DeviceMatrix heads(backend(), before, 3);
        backend().copy_heads(
            {heads.view().col_range(width, 9 * width), one.view(), 5, width, 2 * width, 0});
        HostMatrix expected = before;
        for (std::int64_t t = 0; t < 9; ++t) {
            for (std::int64_t i = 0; i < 5 * width; ++i) {
                expected(t, i / width * 2 * width + width + i % width) = x(t, i % width);
            }
        }
        EXPECT_EQ(heads.download().values, expected.values);
    }
}

TEST_P(RowsTest, SumHeads) {
    for (const std::int64_t width : {3, 64}) {
        for (const std::int64_t heads : {1, 20}) {
            const HostMatrix x = random(9, heads * 2 * width, 1);
            const DeviceMatrix source(backend(), x, 8);
            const DeviceMatrix target(backend(), random(9, width, 2), 3);
            backend().sum_heads({target.view(),
                                 source.view().col_range(width, (2 * heads - 1) * width), heads,
                                 2 * width});
            HostMatrix expected(9, width);
            for (std::int64_t t = 0; t < 9; ++t) {
                for (std::int64_t i = 0; i < heads * width; ++i) {
                    expected(t, i % width) += x(t, i / width * 2 * width + width + i % width);
                }
            }
            expect_close(target, expected, cat("sum_heads of ", heads, " of ", width));
        }
    }
}

TEST_P(RowsTest, AddBias) {
    for (const std::int64_t cols : {33, 64}) {
        for (const DType type : {dtype(), DType::f32}) {
            const HostMatrix y = reference::random_matrix(21, cols, 2, type);
            const HostMatrix bias = reference::random_matrix(1, cols, 3, type);
            const DeviceMatrix device_y(backend(), y, 8, type);
            const DeviceMatrix device_bias(backend(), bias, 0, type);
            HostMatrix expected = y;
            for (std::int64_t i = 0; i < 21; ++i) {
                for (std::int64_t j = 0; j < cols; ++j) expected(i, j) += bias(0, j);
            }
            backend().add_bias({device_y.view(), device_bias.data()});
            expect_close(device_y, expected, cat("add_bias, ", cols, " columns"));
        }
    }
}

TEST_P(RowsTest, AddAndSoftCap) {
    for (const std::int64_t cols : {33, 64}) {
        const HostMatrix y = random(21, cols, 2);
        const HostMatrix x = random(21, cols, 3);
        const DeviceMatrix device_y(backend(), y, 8);
        const DeviceMatrix device_x(backend(), x, 16);
        HostMatrix expected = y;
        for (std::size_t i = 0; i < x.values.size(); ++i) expected.values[i] += x.values[i];
        backend().add({device_y.view(), device_x.view()});
        expect_close(device_y, expected, "add");
        for (const float cap : {0.5F, 30.0F}) {
            const DeviceMatrix capped(backend(), x, 8);
            for (std::size_t i = 0; i < x.values.size(); ++i) {
                expected.values[i] = cap * std::tanh(x.values[i] / cap);
            }
            backend().soft_cap({capped.view(), cap});
            expect_close(capped, expected, cat("soft cap of ", cap));
        }
    }
}

TEST_P(RowsTest, GatherReadsTablesOfBothTypes) {
    const std::vector<std::int32_t> ids{5, 0, 99, 5, 7};
    for (const DType type : {DType::f32, DType::bf16}) {
        const HostMatrix table = reference::random_matrix(100, 70, 1, type);
        const DeviceMatrix device_table(backend(), table, 2, type);
        const DeviceMatrix y(backend(), HostMatrix(5, 70), 3);
        const DeviceVector<std::int32_t> device_ids(backend(), ids);
        for (const float scale : {1.0F, 12.0F / 0.22F}) {
            backend().gather_rows({y.view(), device_table.view(), device_ids.data(), scale});
            HostMatrix expected(5, 70);
            for (std::int64_t i = 0; i < 5; ++i) {
                for (std::int64_t j = 0; j < 70; ++j) {
                    expected(i, j) = static_cast<float>(table(ids[i], j)) * scale;
                }
            }
            EXPECT_EQ(y.download().values, rounded(expected, dtype()).values);
        }
    }
}

TEST_P(RowsTest, ScatterZeroesAllOtherRows) {
    for (const auto& ids :
         std::vector<std::vector<std::int32_t>>{{}, {0}, {1199}, {0, 1, 600, 1199}, {3, 700}}) {
        const auto rows = static_cast<std::int64_t>(ids.size());
        const HostMatrix x = random(rows, 40, 1);
        const DeviceMatrix device_x(backend(), x, 1);
        const DeviceMatrix y(backend(), HostMatrix(1200, 40, 1.0 / 0.0), 2);
        const DeviceVector<std::int32_t> device_ids(backend(), ids);
        backend().scatter_rows({y.view(), device_x.view(), device_ids.data()});
        HostMatrix expected(1200, 40);
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < 40; ++j) expected(ids[i], j) = x(i, j);
        }
        EXPECT_EQ(y.download().values, expected.values);
    }
}

TEST_P(RowsTest, MoveDoubles) {
    const DeviceVector<double> target(backend(), {1.0, 2.0, 3.0, 4.0});
    const DeviceVector<double> source(backend(), {10.0, 20.0, 30.0});
    const std::vector<std::int32_t> to{3, 0};
    const std::vector<std::int32_t> from{0, 2};
    backend().move_doubles({target.data(), source.data(), to, from, false});
    EXPECT_EQ(target.download(), (std::vector<double>{30.0, 2.0, 3.0, 10.0}));
    backend().move_doubles({target.data(), source.data(), to, from, true});
    EXPECT_EQ(target.download(), (std::vector<double>{60.0, 2.0, 3.0, 20.0}));
}

LORATRAIN_FOR_EACH_BACKEND(RowsTest);

}  // namespace
}  // namespace loratrain

#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// What lanes ask of the operators beside CrossEntropyShardsTest: a part of the columns, or of the
/// rows, of what one rank has whole.
class LaneOpsTest : public ::testing::Test {
  protected:
    static HostMatrix columns(const HostMatrix& whole, std::int64_t first, std::int64_t count) {
        HostMatrix part(whole.rows, count);
        for (std::int64_t i = 0; i < whole.rows; ++i) {
            for (std::int64_t j = 0; j < count; ++j) part(i, j) = whole(i, first + j);
        }
        return part;
    }

    std::unique_ptr<Backend> backend_ = make_backend("cpu", {2, 0});
};

TEST_F(LaneOpsTest, MasksOfSomeColumnsAreThoseOfTheWholeInput) {
    constexpr std::int64_t tokens = 150;
    constexpr std::int64_t in = 1240;
    constexpr std::int32_t rank = 3;
    const PackedSamples samples(*backend_, {5, 100, 45});
    const std::vector<LoraSegment> segments{{0, 0, tokens, 4}};
    const LoraRows rows{segments, samples.rows()};
    const HostMatrix x = reference::random_matrix(tokens, in, 1, DType::f32);
    const HostMatrix a = reference::random_matrix(rank, in, 2, DType::f32);
    const HostMatrix ds = reference::random_matrix(tokens, rank, 3, DType::f32);
    struct Result {
        HostMatrix s, dx, grad_a;
    };
    const auto of_columns = [&](std::int64_t first, std::int64_t count) {
        const DeviceMatrix own_x(*backend_, columns(x, first, count));
        const DeviceMatrix own_a(*backend_, columns(a, first, count));
        const DeviceMatrix grad_a(*backend_, HostMatrix(rank, count));
        const DeviceMatrix s(*backend_, HostMatrix(tokens, rank));
        const DeviceMatrix own_ds(*backend_, ds);
        const DeviceMatrix dx(*backend_, HostMatrix(tokens, count));
        LoraSlot slot;
        slot.a = own_a.view().f32();
        slot.grad_a = grad_a.view().f32();
        slot.rank = rank;
        slot.dropout = dropout_threshold(0.4);
        slot.dropout_key = 77;
        slot.dropout_column = static_cast<std::int32_t>(first);
        const std::vector<LoraSlot> slots{slot};
        const std::vector<LoraTarget> forward{{slots, s.view()}};
        const std::vector<LoraTarget> backward{{slots, own_ds.view()}};
        backend_->lora_shrink({own_x.view(), forward, rows});
        backend_->lora_expand_backward({dx.view(), backward, rows, false});
        backend_->lora_grad_a({own_x.view(), backward, rows});
        return Result{s.download(), dx.download(), grad_a.download()};
    };
    const Result whole = of_columns(0, in);
    HostMatrix sum(tokens, rank);
    for (const auto& [first, count] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 8}, {8, 600}, {608, in - 608}}) {
        const Result part = of_columns(first, count);
        EXPECT_EQ(part.dx.values, columns(whole.dx, first, count).values);
        EXPECT_EQ(part.grad_a.values, columns(whole.grad_a, first, count).values);
        for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += part.s.values[i];
    }
    for (std::size_t i = 0; i < sum.values.size(); ++i) {
        EXPECT_NEAR(sum.values[i], whole.s.values[i], 1e-4);
    }
}

TEST_F(LaneOpsTest, NegativeIdsGatherZeros) {
    const HostMatrix values = reference::random_matrix(4, 7, 1, DType::f32);
    const DeviceMatrix table(*backend_, values, 2);
    const DeviceMatrix y(*backend_, HostMatrix(5, 7, 9.0), 3);
    const DeviceVector<std::int32_t> ids(*backend_, {-1, 3, -7, 0, 3});
    backend_->gather_rows(y.view(), table.view(), ids.data());
    const HostMatrix got = y.download();
    for (std::int64_t j = 0; j < 7; ++j) {
        EXPECT_EQ(got(0, j), 0.0);
        EXPECT_EQ(got(1, j), values(3, j));
        EXPECT_EQ(got(2, j), 0.0);
        EXPECT_EQ(got(3, j), values(0, j));
        EXPECT_EQ(got(4, j), values(3, j));
    }
}

}  // namespace
}  // namespace loratrain

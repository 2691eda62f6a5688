#include "reference/lora.h"
#include "reference/rms_norm.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

HostMatrix columns(const HostMatrix& whole, std::int64_t first, std::int64_t count) {
    HostMatrix part(whole.rows, count);
    for (std::int64_t i = 0; i < whole.rows; ++i) {
        for (std::int64_t j = 0; j < count; ++j) part(i, j) = whole(i, first + j);
    }
    return part;
}

/// What lanes ask of the operators beside CrossEntropyShardsTest: a part of the columns, or of the
/// rows, of what one rank has whole.
class LaneOpsTest : public BackendTest {
  protected:
    static constexpr std::int64_t tokens = 150;
    static constexpr std::int64_t in = 1240;
    static constexpr std::int32_t rank = 3;

    struct Products {
        HostMatrix s, dx, grad_a;
    };

    /// Of the whole input, by fp64 loops.
    Products expected() const {
        const std::vector<reference::LoraFactors> slots{
            {a_, HostMatrix(0, rank), rank, 1.0F, 0, dropout_threshold(0.4), 77}};
        const reference::LoraBatch batch{segments_, samples_.positions(), samples_.sample_ids()};
        Products whole{reference::lora_shrink(x_, slots, batch, rank), HostMatrix(tokens, in), {}};
        reference::add_lora_dx(ds_, slots, batch, whole.dx);
        std::vector<HostMatrix> grad_a{HostMatrix(rank, in)};
        reference::add_lora_grad_a(x_, ds_, slots, batch, grad_a);
        whole.grad_a = grad_a[0];
        return whole;
    }

    /// Of columns [first, first + count) of the input, by the backend.
    Products of_columns(std::int64_t first, std::int64_t count) {
        const DeviceMatrix x(backend(), columns(x_, first, count));
        const DeviceVector<float> a = device_floats(backend(), columns(a_, first, count));
        const DeviceVector<float> grad_a = device_floats(backend(), HostMatrix(rank, count));
        const DeviceMatrix s(backend(), HostMatrix(tokens, rank));
        const DeviceMatrix ds(backend(), ds_);
        const DeviceMatrix dx(backend(), HostMatrix(tokens, count));
        LoraSlot slot;
        slot.a = a.data();
        slot.grad_a = grad_a.data();
        slot.rank = rank;
        slot.dropout = dropout_threshold(0.4);
        slot.dropout_key = 77;
        slot.dropout_column = static_cast<std::int32_t>(first);
        const std::vector<LoraSlot> slots{slot};
        const std::vector<LoraTarget> forward{{slots, s.view()}};
        const std::vector<LoraTarget> backward{{slots, ds.view()}};
        const LoraRows rows{segments_, samples_.rows()};
        backend().lora_shrink({x.view(), forward, rows});
        backend().lora_expand_backward({dx.view(), backward, rows, false});
        backend().lora_grad_a({x.view(), backward, rows});
        const std::vector<float> gradient = grad_a.download();
        Products result{s.download(), dx.download(), HostMatrix(rank, count)};
        result.grad_a.values.assign(gradient.begin(), gradient.end());
        return result;
    }

    PackedSamples samples_{backend(), {5, 100, 45}};
    std::vector<LoraSegment> segments_{{0, 0, tokens, 4}};
    HostMatrix x_ = random(tokens, in, 1);
    HostMatrix a_ = reference::random_matrix(rank, in, 2);
    HostMatrix ds_ = random(tokens, rank, 3);
};

TEST_P(LaneOpsTest, MasksOfSomeColumnsAreThoseOfTheWholeInput) {
    const Products whole = expected();
    HostMatrix sum(tokens, rank);
    for (const auto& [first, count] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 8}, {8, 600}, {608, in - 608}}) {
        const Products part = of_columns(first, count);
        const std::string what = cat(" of the columns from ", first, " on");
        expect_close(part.dx.values, columns(whole.dx, first, count).values, tolerance_of(dtype()),
                     "dX" + what);
        expect_close(part.grad_a.values, columns(whole.grad_a, first, count).values,
                     tolerance_of(dtype()), "grad_a" + what);
        for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += part.s.values[i];
    }
    expect_close(sum.values, whole.s.values, tolerance_of(dtype()), "sum of S");
}

TEST_P(LaneOpsTest, DropoutNeedsNoOffsetWhereNothingDrops) {
    const DeviceMatrix x(backend(), x_);
    const DeviceVector<float> a = device_floats(backend(), a_);
    const DeviceMatrix s(backend(), HostMatrix(tokens, rank));
    LoraSlot slot;
    slot.a = a.data();
    slot.rank = rank;
    slot.dropout_column = 16;
    const std::vector<LoraSlot> slots{slot};
    const std::vector<LoraTarget> targets{{slots, s.view()}};
    backend().lora_shrink({x.view(), targets, {segments_, samples_.rows()}});
    const std::vector<reference::LoraFactors> factors{{a_, HostMatrix(0, rank), rank}};
    const reference::LoraBatch batch{segments_, samples_.positions(), samples_.sample_ids()};
    expect_close(s, reference::lora_shrink(x_, factors, batch, rank), "S");
}

TEST_P(LaneOpsTest, NegativeIdsGatherZeros) {
    for (const std::int64_t cols : {7, 64}) {
        const HostMatrix values = random(4, cols, 1);
        const DeviceMatrix table(backend(), values, 8);
        const DeviceMatrix y(backend(), HostMatrix(5, cols, 9.0), 16);
        const std::vector<std::int32_t> ids{-1, 3, -7, 0, 3};
        const DeviceVector<std::int32_t> device_ids(backend(), ids);
        backend().gather_rows({y.view(), table.view(), device_ids.data(), 1.0F});
        const HostMatrix got = y.download();
        for (std::int64_t i = 0; i < 5; ++i) {
            const std::int32_t id = ids[static_cast<std::size_t>(i)];
            for (std::int64_t j = 0; j < cols; ++j) {
                EXPECT_EQ(got(i, j), id < 0 ? 0.0 : values(id, j)) << i << ", " << j;
            }
        }
    }
}

/// A norm of which lanes have the columns between neighbouring cuts.
class LaneNormTest : public BackendTest {
  protected:
    static constexpr std::int64_t tokens = 70;
    static constexpr float eps = 1e-5F;
    static constexpr float offset = 0.5F;

    void check(const std::vector<std::int64_t>& cuts, std::int64_t padding) {
        const std::int64_t whole = cuts.back();
        const HostMatrix x = random(tokens, whole, 1);
        const HostMatrix weight = random(1, whole, 2);
        const HostMatrix dy = random(tokens, whole, 3);
        HostMatrix more = weight;
        for (double& value : more.values) value += offset;
        const HostMatrix y = reference::rms_norm(x, more, eps, 1);
        const HostMatrix dx = reference::rms_norm_backward(x, more, eps, 1, dy);
        const HostMatrix sums = sums_of(x, weight, dy, cuts, padding);
        const DeviceMatrix device_sums(backend(), sums, 0, DType::f32);
        for (std::size_t lane = 0; lane + 1 < cuts.size(); ++lane) {
            const std::int64_t first = cuts[lane];
            const std::int64_t count = cuts[lane + 1] - first;
            const DeviceMatrix own(backend(), columns(x, first, count), padding);
            const DeviceMatrix own_dy(backend(), columns(dy, first, count), padding);
            const DeviceMatrix own_weight(backend(), columns(weight, first, count));
            const LaneNorm op{
                own.view(), own_weight.data(), eps,   device_sums.view().col_range(0, 1),
                whole,      own.view(),        offset};
            backend().lane_norm_backward(
                {op, device_sums.view().col_range(1, 1), own_dy.view(), own_dy.view()});
            expect_close(own_dy, columns(dx, first, count), cat("dx of ", count, " columns"));
            backend().lane_norm(op);
            expect_close(own, columns(y, first, count), cat("y of ", count, " columns"));
        }
    }

  private:
    /// Squares, and products with the gradient, added up over the lanes.
    HostMatrix sums_of(const HostMatrix& x, const HostMatrix& weight, const HostMatrix& dy,
                       const std::vector<std::int64_t>& cuts, std::int64_t padding) {
        HostMatrix sums(tokens, 2);
        for (std::size_t lane = 0; lane + 1 < cuts.size(); ++lane) {
            const std::int64_t first = cuts[lane];
            const std::int64_t count = cuts[lane + 1] - first;
            const DeviceMatrix own(backend(), columns(x, first, count), padding);
            const DeviceMatrix own_dy(backend(), columns(dy, first, count));
            const DeviceMatrix own_weight(backend(), columns(weight, first, count));
            const DeviceMatrix parts(backend(), HostMatrix(tokens, 2), 0, DType::f32);
            backend().row_dots(
                {own.view(), own.view(), nullptr, 0.0F, parts.view().col_range(0, 1)});
            backend().row_dots({own.view(), own_dy.view(), own_weight.data(), offset,
                                parts.view().col_range(1, 1)});
            const HostMatrix got = parts.download();
            for (std::size_t i = 0; i < sums.values.size(); ++i) sums.values[i] += got.values[i];
        }
        return sums;
    }
};

TEST_P(LaneNormTest, LanesMakeTheirColumnsOfTheWholeNorm) {
    check({0, 48}, 0);
    check({0, 3, 10}, 5);
    check({0, 512, 1024, 1536, 2048}, 8);
    check({0, 1240, 4104}, 8);
}

LORATRAIN_FOR_EACH_BACKEND(LaneNormTest);
LORATRAIN_FOR_EACH_BACKEND(LaneOpsTest);

}  // namespace
}  // namespace loratrain

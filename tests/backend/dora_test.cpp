#include "reference/dora.h"

#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

std::vector<double> positive(std::int64_t count, std::uint64_t seed) {
    std::vector<double> values = reference::random_matrix(1, count, seed).values;
    for (double& value : values) value = static_cast<float>(1.5 + value);
    return values;
}

std::vector<float> floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

std::vector<double> doubles(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

class DoraTest : public BackendTest {};

TEST_P(DoraTest, NormsAgreeWithLoops) {
    struct Shape {
        std::int64_t out, in;
        std::int32_t rank;
    };
    for (const auto& [out, in, rank] :
         {Shape{1, 1, 1}, Shape{35, 70, 0}, Shape{33, 40, 3}, Shape{16, 1100, 16},
          Shape{9, 24, 130}, Shape{50, 2049, 5}, Shape{67, 136, 40}, Shape{4, 40, 700}}) {
        const HostMatrix w = random(out, in, 1);
        const reference::LoraFactors f{reference::random_matrix(rank, in, 2),
                                       reference::random_matrix(out, rank, 3), rank, 0.25F};
        const DeviceMatrix device_w(backend(), w, 5);
        const DeviceVector<float> a = device_floats(backend(), f.a);
        const DeviceVector<float> b = device_floats(backend(), f.b);
        const DeviceVector<float> squares(backend(),
                                          std::vector<float>(static_cast<std::size_t>(out), 7.0F));
        LoraSlot slot;
        slot.a = a.data();
        slot.b = b.data();
        slot.rank = rank;
        slot.scale = f.scale;
        backend().dora_norms({device_w.view(), slot, squares.data()});
        expect_close(doubles(squares.download()), reference::dora_squares(w, f), {1e-5}, "squares");
    }
}

TEST_P(DoraTest, ScaleAgreesWithLoops) {
    for (const std::int64_t rows : {0, 1, 37, 262145}) {
        for (const std::int64_t cols : {1, 8, 13, 2048, 2056}) {
            if (rows * cols > 3000000) continue;
            const HostMatrix source = random(rows, cols, 1);
            const HostMatrix start = random(rows, cols, 2);
            const std::vector<double> m = positive(cols, 3);
            const std::vector<double> squares = positive(cols, 4);
            const DeviceVector<float> device_m(backend(), floats(m));
            const DeviceVector<float> device_squares(backend(), floats(squares));
            const DeviceMatrix x(backend(), source, 3);
            const DeviceMatrix y(backend(), start, 1);
            DoraScale op{y.view(), x.view(), device_m.data(), device_squares.data(),
                         true,     y.view()};
            backend().dora_scale(op);
            HostMatrix expected = reference::dora_scale(source, m, squares, 1.0);
            for (std::size_t i = 0; i < expected.values.size(); ++i) {
                expected.values[i] += start.values[i];
            }
            expect_close(y, expected, "added");
            expect_close(x, source, "the source is only read");
            const HostMatrix other = random(rows, cols, 5);
            const DeviceMatrix added(backend(), other, 2);
            op.added = added.view();
            backend().dora_scale(op);
            expected = reference::dora_scale(source, m, squares, 1.0);
            for (std::size_t i = 0; i < expected.values.size(); ++i) {
                expected.values[i] += other.values[i];
            }
            expect_close(y, expected, "added to another");
            op.less_one = false;
            op.added = {};
            backend().dora_scale(op);
            expect_close(y, reference::dora_scale(source, m, squares, 0.0), "written");
            op.target = x.view();
            op.less_one = true;
            backend().dora_scale(op);
            expect_close(x, reference::dora_scale(source, m, squares, 1.0), "in place");
        }
    }
}

TEST_P(DoraTest, GradientOfTheMagnitudeIsAdded) {
    for (const std::int64_t rows : {0, 1, 300}) {
        for (const std::int64_t cols : {1, 40, 42, 520}) {
            const HostMatrix dy = random(rows, cols, 1);
            const HostMatrix v = random(rows, cols, 2);
            const std::vector<double> squares = positive(cols, 3);
            const DeviceVector<float> device_squares(backend(), floats(squares));
            const DeviceVector<float> gradient(
                backend(), std::vector<float>(static_cast<std::size_t>(cols), 0.5F));
            const DeviceMatrix device_dy(backend(), dy, 3);
            const DeviceMatrix device_v(backend(), v, 1);
            backend().dora_grad_magnitude(
                {device_dy.view(), device_v.view(), device_squares.data(), gradient.data()});
            std::vector<double> expected = reference::dora_grad_magnitude(dy, v, squares);
            for (double& value : expected) value += 0.5;
            expect_close(doubles(gradient.download()), expected, {1e-5}, "gradient");
            std::vector<double> m = positive(cols, 4);
            m[0] = 0.0;
            const DeviceVector<float> device_m(backend(), floats(m));
            const DeviceMatrix scaled(backend(), reference::dora_scale(v, m, squares, 0.0), 2);
            const DeviceMatrix scaled_dy(backend(), reference::dora_scale(dy, m, squares, 0.0), 1);
            expected[0] = 0.5;
            for (const int count : {1, 2}) {
                const DeviceVector<float> again(
                    backend(), std::vector<float>(static_cast<std::size_t>(cols), 0.5F));
                const DeviceMatrix& left = count == 2 ? scaled_dy : device_dy;
                backend().dora_grad_magnitude({left.view(), scaled.view(), device_squares.data(),
                                               again.data(), device_m.data(), count});
                expect_close(doubles(again.download()), expected,
                             tolerance_of(backend().compute_dtype()), "of what was scaled");
            }
        }
    }
}

/// The masks of lora_shrink.
TEST_P(DoraTest, RowsAreDroppedAsLoraInputsAre) {
    constexpr std::int64_t tokens = 12;
    for (const std::int64_t in : {21, 64}) {
        const PackedSamples samples(backend(), {5, 7});
        const HostMatrix x = random(tokens, in, 1);
        const HostMatrix start = random(tokens, in, 2);
        reference::LoraFactors f;
        f.rank = 1;
        f.dropout_key = 77;
        const LoraSegment segment{0, 0, tokens, 4};
        const reference::LoraBatch batch{{segment}, samples.positions(), samples.sample_ids()};
        for (const double p : {0.0, 0.5}) {
            f.dropout = dropout_threshold(p);
            LoraSlot slot;
            slot.rank = 1;
            slot.dropout = f.dropout;
            slot.dropout_key = f.dropout_key;
            HostMatrix dropped(tokens, in);
            for (std::int64_t t = 0; t < tokens; ++t) {
                for (std::int64_t k = 0; k < in; ++k) {
                    dropped(t, k) = x(t, k) * reference::dropout_factor(f, segment, batch, t, k);
                }
            }
            HostMatrix added = dropped;
            for (std::size_t i = 0; i < added.values.size(); ++i) {
                added.values[i] += start.values[i];
            }
            const DeviceMatrix device_x(backend(), x, 3);
            const DeviceMatrix y(backend(), start);
            const PackedRows rows = samples.rows();
            DropRows op{y.view(), device_x.view(), slot, rows.positions, rows.sample_ids, 4, true};
            backend().drop_rows(op);
            expect_close(y, added, "added");
            op.accumulate = false;
            backend().drop_rows(op);
            expect_close(y, dropped, "written");
            op.y = device_x.view();
            backend().drop_rows(op);
            expect_close(device_x, dropped, "in place");
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(DoraTest);

}  // namespace
}  // namespace loratrain

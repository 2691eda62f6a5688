#include <algorithm>
#include <array>
#include <limits>

#include "reference/lora.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr std::int64_t ragged_in = 328;
constexpr std::int64_t ragged_out = 296;

/// Adapters of unlike ranks on rows of their own, each with its S from column 0 on, as microbatches
/// go by segment.
struct RaggedRows {
    std::vector<std::int32_t> lengths;
    std::vector<LoraSegment> segments;
    std::vector<std::int32_t> first_ranks;
    std::vector<std::int32_t> second_ranks;
};

/// Segments of one row, of a tile's rows and of some more, rows of none, an adapter without rows.
RaggedRows ragged_rows() {
    return {{1, 130, 63, 1, 96, 34, 129},
            {{6, 0, 1, 1},
             {1, 1, 131, 2},
             {2, 131, 194, 3},
             {5, 194, 195, 4},
             {4, 195, 291, 5},
             {3, 292, 325, 6},
             {0, 325, 454, 7}},
            {1, 8, 17, 32, 100, 128, 256, 48},
            {128, 0, 64, 33, 16, 20, 48, 7}};
}

class LoraRanksTest : public BackendTest {
  protected:
    struct Setting {
        Setting(Backend& backend, const RaggedRows& rows, std::int64_t in = ragged_in,
                std::int64_t first_out = ragged_out)
            : samples(backend, rows.lengths),
              batch{rows.segments, samples.positions(), samples.sample_ids()},
              outs{first_out, first_out + 8},
              first(backend, in, outs[0], rows.first_ranks, 0, 1, SColumns::stacked),
              second(backend, in, outs[1], rows.second_ranks, 0, 2, SColumns::stacked) {}

        LoraRows rows() const { return {batch.segments, samples.rows()}; }
        std::int64_t tokens() const { return samples.rows().tokens; }

        PackedSamples samples;
        reference::LoraBatch batch;
        std::array<std::int64_t, 2> outs;
        LoraLinear first, second;
    };

    template <class Body>
    void for_each_setting(const Body& body) {
        const std::vector<RaggedRows> settings{
            ragged_rows(),
            {{200, 313}, {{0, 0, 513, 0}}, {192}, {40}},
            {{150, 150}, {{1, 0, 150, 0}, {0, 150, 300, 0}}, {32, 24}, {16, 32}}};
        for (const RaggedRows& rows : settings) {
            Setting setting(backend(), rows);
            body(setting);
            setting.first.begin_gradients();
            setting.second.begin_gradients();
            body(setting);
        }
    }

    /// S of two linears that read x.
    void expect_shrink(const Setting& setting, const HostMatrix& x, std::int64_t padding) {
        const DeviceMatrix device_x(backend(), x, padding);
        const DeviceMatrix s1 = junk(x.rows, setting.first.columns());
        const DeviceMatrix s2 = junk(x.rows, setting.second.columns());
        const DeviceMatrix again = junk(x.rows, setting.first.columns());
        const DeviceMatrix both = junk(x.rows, setting.first.columns() + setting.second.columns());
        const std::vector<LoraTarget> targets{setting.first.target(s1.view()),
                                              setting.second.target(s2.view())};
        backend().lora_shrink({device_x.view(), targets, setting.rows(), both.view()});
        expect_side_by_side(both, {&s1, &s2});
        backend().lora_shrink({device_x.view(), targets, setting.rows(), again.view()});
        const auto expected = [&](const LoraLinear& linear) {
            return reference::lora_shrink(x, linear.factors(), setting.batch, linear.columns());
        };
        expect_close(s1, expected(setting.first), "S of the first");
        expect_close(s2, expected(setting.second), "S of the second");
        expect_close(again, expected(setting.first), "S of the first again");
    }

    static void expect_side_by_side(const DeviceMatrix& all,
                                    const std::vector<const DeviceMatrix*>& parts) {
        const HostMatrix whole = all.download();
        std::int64_t first = 0;
        for (const DeviceMatrix* part : parts) {
            const HostMatrix one = part->download();
            for (std::int64_t i = 0; i < one.rows; ++i) {
                for (std::int64_t j = 0; j < one.cols; ++j) {
                    ASSERT_EQ(whole(i, first + j), one(i, j)) << i << " " << first + j;
                }
            }
            first += one.cols;
        }
        EXPECT_EQ(first, whole.cols);
    }

    DeviceMatrix junk(std::int64_t rows, std::int64_t cols) {
        return {backend(), HostMatrix(rows, cols, std::numeric_limits<double>::infinity()), 8};
    }

    /// dS and gradients of B of two linears whose outputs lie side by side.
    void expect_backward(const Setting& setting) {
        const std::int64_t tokens = setting.tokens();
        const HostMatrix dy = random(tokens, setting.outs[0] + setting.outs[1], 3);
        const DeviceMatrix together(backend(), dy, 8);
        const std::array linears{&setting.first, &setting.second};
        std::vector<DeviceMatrix> s;
        std::vector<DeviceMatrix> ds;
        for (std::size_t i = 0; i < linears.size(); ++i) {
            s.emplace_back(backend(),
                           own_columns(*linears[i], setting.batch, tokens, 4 + i, dtype()), 8);
            ds.push_back(junk(tokens, linears[i]->columns()));
        }
        std::vector<LoraBackward> ops;
        for (std::size_t i = 0; i < linears.size(); ++i) {
            ops.push_back({together.view().col_range(i == 0 ? 0 : setting.outs[0], setting.outs[i]),
                           linears[i]->target(s[i].view()), ds[i].view(), setting.rows()});
        }
        backend().lora_backward_group(ops);
        for (std::size_t i = 0; i < linears.size(); ++i) {
            const LoraLinear& linear = *linears[i];
            HostMatrix part(tokens, setting.outs[i]);
            for (std::int64_t row = 0; row < tokens; ++row) {
                for (std::int64_t col = 0; col < part.cols; ++col) {
                    part(row, col) = dy(row, (i == 0 ? 0 : setting.outs[0]) + col);
                }
            }
            expect_close(
                ds[i], reference::lora_ds(part, linear.factors(), setting.batch, linear.columns()),
                cat("dS ", i));
            auto expected = linear.gradient_starts(setting.batch, false);
            reference::add_lora_grad_b(part,
                                       own_columns(linear, setting.batch, tokens, 4 + i, dtype()),
                                       linear.factors(), setting.batch, expected);
            expect_gradients(linear, expected, false);
        }
    }

    void expect_gradients(const LoraLinear& linear, const std::vector<HostMatrix>& expected,
                          bool of_a) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const auto& gradient = of_a ? linear.grad_a(i) : linear.grad_b(i);
            expect_close(gradient, expected[i], dtype(),
                         cat(of_a ? "grad_a" : "grad_b", " of rank ", linear.factors()[i].rank));
        }
    }
};

TEST_P(LoraRanksTest, ForwardOfRaggedRanks) {
    for_each_setting([&](const Setting& setting) {
        const HostMatrix x = random(setting.tokens(), ragged_in, 1);
        expect_shrink(setting, x, 8);
        const HostMatrix s = own_columns(setting.first, setting.batch, x.rows, 2, dtype());
        const HostMatrix y = random(x.rows, ragged_out, 3);
        const DeviceMatrix device_s(backend(), s, 8);
        const DeviceMatrix device_y(backend(), y, 8);
        backend().lora_expand(
            {setting.first.target(device_s.view()), device_y.view(), setting.rows()});
        expect_close(device_y, reference::lora_expand(y, s, setting.first.factors(), setting.batch),
                     "Y + S Bᵀ");
    });
}

/// More columns than one thread block adds up; of an odd number, with which rows of A begin
/// anywhere.
TEST_P(LoraRanksTest, ForwardOfManyColumns) {
    const std::vector<RaggedRows> settings{ragged_rows(), {{300}, {{0, 3, 297, 0}}, {40}, {24}}};
    for (const auto& [in, padding] : {std::pair{1031, 9}, std::pair{2088, 8}}) {
        for (const RaggedRows& rows : settings) {
            const Setting setting(backend(), rows, in);
            expect_shrink(setting, random(setting.tokens(), in, 1), padding);
        }
    }
}

TEST_P(LoraRanksTest, BackwardOfRaggedRanks) {
    for_each_setting([&](const Setting& setting) { expect_backward(setting); });
}

/// Where no adapter has more than 16 ranks, a dY of so many elements goes another way.
TEST_P(LoraRanksTest, BackwardOfFewRanksAndManyColumns) {
    constexpr std::int64_t out = 8200;
    const RaggedRows rows{{300, 1, 255, 84},
                          {{2, 0, 300, 1}, {0, 300, 301, 2}, {1, 301, 556, 3}, {2, 560, 640, 4}},
                          {16, 5, 12, 8},
                          {8, 16, 0, 3}};
    Setting setting(backend(), rows, 8, out);
    ASSERT_GT(setting.tokens() * (2 * out + 8), 10 << 20);
    expect_backward(setting);
    setting.first.begin_gradients();
    setting.second.begin_gradients();
    expect_backward(setting);
}

TEST_P(LoraRanksTest, GradientsOfAAndXOfRaggedRanks) {
    for_each_setting([&](const Setting& setting) {
        const HostMatrix x = random(setting.tokens(), ragged_in, 1);
        const HostMatrix ds1 = own_columns(setting.first, setting.batch, x.rows, 2, dtype());
        const HostMatrix ds2 = own_columns(setting.second, setting.batch, x.rows, 3, dtype());
        const DeviceMatrix device_x(backend(), x, 8);
        const DeviceMatrix device_ds1(backend(), ds1, 8);
        const DeviceMatrix device_ds2(backend(), ds2, 8);
        const std::vector<LoraTarget> targets{setting.first.target(device_ds1.view()),
                                              setting.second.target(device_ds2.view())};
        backend().lora_grad_a({device_x.view(), targets, setting.rows()});
        auto expected = setting.first.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(x, ds1, setting.first.factors(), setting.batch, expected);
        expect_gradients(setting.first, expected, true);
        expected = setting.second.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(x, ds2, setting.second.factors(), setting.batch, expected);
        expect_gradients(setting.second, expected, true);

        for (const bool accumulate : {false, true}) {
            HostMatrix dx = accumulate ? x : HostMatrix(x.rows, ragged_in);
            reference::add_lora_dx(ds1, setting.first.factors(), setting.batch, dx);
            reference::add_lora_dx(ds2, setting.second.factors(), setting.batch, dx);
            const DeviceMatrix made(backend(), x, 8);
            backend().lora_expand_backward({made.view(), targets, setting.rows(), accumulate});
            expect_close(made, dx, cat("dX, accumulate = ", accumulate));
        }
    });
}

TEST_P(LoraRanksTest, GradientsOfATimesAWeight) {
    const auto expect = [&](const Setting& setting) {
        const HostMatrix x = random(setting.tokens(), ragged_in, 1);
        const HostMatrix weight = random(1, ragged_in, 4);
        const DeviceMatrix device_x(backend(), x, 8);
        const DeviceMatrix device_weight(backend(), weight);
        const HostMatrix ds1 = own_columns(setting.first, setting.batch, x.rows, 2, dtype());
        const HostMatrix ds2 = own_columns(setting.second, setting.batch, x.rows, 3, dtype());
        const DeviceMatrix device_ds1(backend(), ds1, 8);
        const DeviceMatrix device_ds2(backend(), ds2, 8);
        const std::vector<LoraTarget> targets{setting.first.target(device_ds1.view()),
                                              setting.second.target(device_ds2.view())};
        backend().lora_grad_a(
            {device_x.view(), targets, setting.rows(), device_weight.data(), 0.25F});
        const HostMatrix weighted = reference::weighted(x, weight, 0.25);
        auto expected = setting.first.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(weighted, ds1, setting.first.factors(), setting.batch, expected);
        expect_gradients(setting.first, expected, true);
        expected = setting.second.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(weighted, ds2, setting.second.factors(), setting.batch,
                                   expected);
        expect_gradients(setting.second, expected, true);
    };
    for_each_setting(expect);
    const RaggedRows few_ranks{{300, 90}, {{1, 0, 300, 1}, {0, 300, 380, 2}}, {16, 20}, {24, 12}};
    expect(Setting(backend(), few_ranks));
}

/// Which kernel passes over dY depends on whether some adapter has more than 16 ranks.
TEST_P(LoraRanksTest, RanksOfOthersChangeNoBitOfBackward) {
    constexpr std::int64_t rows = 300;
    const HostMatrix dy = random(rows, ragged_out, 1);
    const HostMatrix s = random(rows, 128, 2);
    const DeviceMatrix device_dy(backend(), dy, 8);
    const DeviceMatrix device_s(backend(), s, 8);
    const std::vector<LoraSegment> segments{{0, 0, 170, 0}, {1, 170, rows, 0}};
    const PackedSamples samples(backend(), {170, 130});
    for (const std::int32_t own : {8, 16, 40, 128}) {
        std::vector<std::vector<double>> values_of_ds;
        std::vector<std::vector<float>> gradients;
        for (const std::int32_t other : {8, 16, 24, 64, 128}) {
            const LoraLinear linear(backend(), ragged_in, ragged_out, {own, other}, 0, 5,
                                    SColumns::stacked);
            const DeviceMatrix ds = junk(rows, 128);
            backend().lora_backward({device_dy.view(),
                                     linear.target(device_s.view()),
                                     ds.view(),
                                     {segments, samples.rows()}});
            const HostMatrix all = ds.download();
            values_of_ds.emplace_back(all.values.begin(), all.values.begin() + 170 * 128);
            gradients.push_back(linear.grad_b(0).download());
            EXPECT_EQ(values_of_ds.front(), values_of_ds.back()) << own << " beside " << other;
            EXPECT_EQ(gradients.front(), gradients.back()) << own << " beside " << other;
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(LoraRanksTest);

}  // namespace
}  // namespace loratrain

#include "reference/lora.h"

#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>

#include "reference/rms_norm.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

struct LoraShape {
    std::int64_t in, out;
    std::vector<std::int32_t> lengths;
    std::vector<LoraSegment> segments;  ///< of the slots below
    std::vector<std::int32_t> first_ranks{4, 0, 1, 16};
    std::vector<std::int32_t> second_ranks{2, 3, 0, 5};
};

const std::vector<std::int32_t> ranks{4, 0, 1, 16};

const std::vector<LoraShape> lora_shapes{
    {24, 40, {}, {}},
    {24, 40, {5}, {}},
    {8, 3, {1}, {{2, 0, 1, 7}}},
    {30, 17, {4, 0, 9}, {{3, 0, 4, 1}, {0, 4, 13, 9}}},
    {520, 600, {100, 200, 50}, {{0, 5, 100, 3}, {1, 100, 120, 4}, {3, 120, 349, 5}}},
    {72, 48, {60, 60}, {{3, 0, 10, 0}, {2, 10, 10, 0}, {3, 12, 90, 1}, {0, 90, 120, 2}}},
    {840, 520, {500, 700}, {{0, 3, 290, 3}, {3, 290, 1100, 4}, {2, 1100, 1200, 5}}}};

/// 32 adapters of ranks 32 to 128 on a linear of an 8B model, 7 to 38 tokens each.
LoraShape wide_shape() {
    LoraShape shape{4096, 4096, {}, {}, {}, {}};
    std::int32_t begin = 0;
    for (std::int32_t slot = 0; slot < 32; ++slot) {
        const std::int32_t tokens = 7 + slot * 13 % 32;
        shape.lengths.push_back(tokens);
        shape.segments.push_back({slot, begin, begin + tokens, 1});
        shape.first_ranks.push_back(32 + slot * 37 % 97);
        shape.second_ranks.push_back(slot % 4 == 0 ? 0 : 128 - slot * 37 % 97);
        begin += tokens;
    }
    return shape;
}

/// More rows than kernels take in their smallest tiles, and ranks of several strips and blocks.
LoraShape tall_shape() {
    return {200,
            72,
            {2500, 2100},
            {{0, 3, 1500, 3}, {3, 1500, 4200, 4}, {2, 4250, 4600, 5}},
            {24, 0, 1, 33},
            {2, 3, 0, 16}};
}

/// On GPUs also large ones, but for tools that make kernels a thousand times slower.
std::vector<LoraShape> shapes_for(const std::string& backend) {
    std::vector<LoraShape> result = lora_shapes;
    const bool quick = std::getenv("LORATRAIN_TEST_QUICK") != nullptr;
    if (backend.starts_with("cuda") && !quick) {
        result.push_back(wide_shape());
        result.push_back(tall_shape());
    }
    return result;
}

/// Two linears of different ranks that read the same X, without dropout, with it, and with it in
/// the first alone.
class LoraTest : public BackendTest {
  protected:
    struct Setting {
        Setting(Backend& backend, const LoraShape& shape, std::uint32_t dropout,
                std::uint32_t second_dropout)
            : samples(backend, shape.lengths),
              batch{shape.segments, samples.positions(), samples.sample_ids()},
              first(backend, shape.in, shape.out, shape.first_ranks, dropout, 1),
              second(backend, shape.in, shape.out + 1, shape.second_ranks, second_dropout, 2) {}

        LoraRows rows() const { return {batch.segments, samples.rows()}; }
        std::int64_t tokens() const { return samples.rows().tokens; }

        PackedSamples samples;
        reference::LoraBatch batch;
        LoraLinear first, second;
    };

    template <class Body>
    void for_each_setting(const Body& body) {
        for (const LoraShape& shape : shapes_for(GetParam().name)) {
            for (const auto& [first, second] :
                 {std::pair(0U, 0U), std::pair(20000U, 20000U), std::pair(20000U, 0U)}) {
                Setting setting(backend(), shape, first, second);
                body(shape, setting);
            }
        }
    }

    DeviceMatrix junk(std::int64_t rows, std::int64_t cols) {
        return {backend(), HostMatrix(rows, cols, std::numeric_limits<double>::infinity()), 3};
    }

    static HostMatrix columns(const HostMatrix& whole, std::int64_t first, std::int64_t count) {
        HostMatrix part(whole.rows, count);
        for (std::int64_t i = 0; i < part.rows; ++i) {
            for (std::int64_t j = 0; j < count; ++j) part(i, j) = whole(i, first + j);
        }
        return part;
    }

    void expect_gradients(const LoraLinear& linear, const std::vector<HostMatrix>& expected,
                          bool of_a) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expect_close(of_a ? linear.grad_a(i) : linear.grad_b(i), expected[i], dtype(),
                         cat(of_a ? "grad_a" : "grad_b", " of slot ", i));
        }
    }
};

TEST_P(LoraTest, ShrinkServesAllTargetsOfX) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const HostMatrix x = random(setting.tokens(), shape.in, 1);
        const DeviceMatrix device_x(backend(), x, 16);
        const DeviceMatrix s1 = junk(x.rows, setting.first.columns());
        const DeviceMatrix s2 = junk(x.rows, setting.second.columns());
        const std::vector<LoraTarget> targets{setting.first.target(s1.view()),
                                              setting.second.target(s2.view())};
        const DeviceMatrix again = junk(x.rows, setting.first.columns());
        backend().lora_shrink({device_x.view(), targets, setting.rows(), again.view()});
        EXPECT_EQ(again.download().values, s1.download().values);
        expect_close(s1,
                     reference::lora_shrink(x, setting.first.factors(), setting.batch,
                                            setting.first.columns()),
                     "S of the first linear");
        expect_close(s2,
                     reference::lora_shrink(x, setting.second.factors(), setting.batch,
                                            setting.second.columns()),
                     "S of the second linear");
    });
}

TEST_P(LoraTest, ExpandAddsToY) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const HostMatrix s =
            own_columns(setting.first, setting.batch, setting.tokens(), 2, dtype());
        const HostMatrix y = random(setting.tokens(), shape.out, 3);
        const DeviceMatrix device_s(backend(), s, 1);
        const DeviceMatrix device_y(backend(), y, 4);
        backend().lora_expand(
            {setting.first.target(device_s.view()), device_y.view(), setting.rows()});
        expect_close(device_y, reference::lora_expand(y, s, setting.first.factors(), setting.batch),
                     "Y + S Bᵀ");
    });
}

TEST_P(LoraTest, BackwardMakesDsAndGradB) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const HostMatrix s =
            own_columns(setting.first, setting.batch, setting.tokens(), 2, dtype());
        const HostMatrix dy = random(setting.tokens(), shape.out, 3);
        const DeviceMatrix device_s(backend(), s, 1);
        const DeviceMatrix device_dy(backend(), dy, 8);
        const DeviceMatrix ds = junk(dy.rows, setting.first.columns());
        backend().lora_backward(
            {device_dy.view(), setting.first.target(device_s.view()), ds.view(), setting.rows()});
        expect_close(
            ds,
            reference::lora_ds(dy, setting.first.factors(), setting.batch, setting.first.columns()),
            "dS");
        auto expected = setting.first.gradient_starts(setting.batch, false);
        reference::add_lora_grad_b(dy, s, setting.first.factors(), setting.batch, expected);
        expect_gradients(setting.first, expected, false);
    });
}

TEST_P(LoraTest, BackwardOfLinearsSideBySideAndApart) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const std::array<const LoraLinear*, 2> linears{&setting.first, &setting.second};
        const HostMatrix dy = random(setting.tokens(), 2 * shape.out + 1, 3);
        const DeviceMatrix together(backend(), dy, 8);
        for (const bool side_by_side : {true, false}) {
            std::vector<DeviceMatrix> made;
            std::vector<DeviceMatrix> s;
            std::vector<DeviceMatrix> apart;
            std::vector<HostMatrix> parts;
            std::vector<LoraBackward> ops;
            for (std::size_t i = 0; i < linears.size(); ++i) {
                const LoraLinear& linear = *linears[i];
                const std::int64_t first = i == 0 ? 0 : shape.out;
                const std::int64_t out = shape.out + (i == 0 ? 0 : 1);
                parts.push_back(columns(dy, first, out));
                s.emplace_back(backend(),
                               own_columns(linear, setting.batch, dy.rows, 2 + i, dtype()), 1);
                made.push_back(junk(dy.rows, linear.columns()));
                apart.emplace_back(backend(), parts[i], 8);
                ops.push_back(
                    {side_by_side ? together.view().col_range(first, out) : apart[i].view(),
                     linear.target(s[i].view()), made[i].view(), setting.rows()});
            }
            backend().lora_backward_group(ops);
            for (std::size_t i = 0; i < linears.size(); ++i) {
                const LoraLinear& linear = *linears[i];
                expect_close(
                    made[i],
                    reference::lora_ds(parts[i], linear.factors(), setting.batch, linear.columns()),
                    cat("dS ", i));
                auto expected = linear.gradient_starts(setting.batch, false);
                for (int times = side_by_side ? 1 : 2; times > 0; --times) {
                    reference::add_lora_grad_b(
                        parts[i], own_columns(linear, setting.batch, dy.rows, 2 + i, dtype()),
                        linear.factors(), setting.batch, expected);
                }
                expect_gradients(linear, expected, false);
            }
        }
    });
}

TEST_P(LoraTest, GradA) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const HostMatrix x = random(setting.tokens(), shape.in, 1);
        const HostMatrix ds1 = own_columns(setting.first, setting.batch, x.rows, 2, dtype());
        const HostMatrix ds2 = own_columns(setting.second, setting.batch, x.rows, 3, dtype());
        const DeviceMatrix device_x(backend(), x, 16);
        const DeviceMatrix device_ds1(backend(), ds1, 1);
        const DeviceMatrix device_ds2(backend(), ds2, 1);
        const std::vector<LoraTarget> targets{setting.first.target(device_ds1.view()),
                                              setting.second.target(device_ds2.view())};
        backend().lora_grad_a({device_x.view(), targets, setting.rows()});
        auto expected1 = setting.first.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(x, ds1, setting.first.factors(), setting.batch, expected1);
        expect_gradients(setting.first, expected1, true);
        auto expected2 = setting.second.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(x, ds2, setting.second.factors(), setting.batch, expected2);
        expect_gradients(setting.second, expected2, true);
    });
}

/// From x and the norm's weight, with dS that the norm's backward scaled.
TEST_P(LoraTest, GradAOfWhatANormMakes) {
    constexpr float eps = 1e-5F;
    constexpr float offset = 1.0F;
    for_each_setting([&](const LoraShape& shape, Setting& setting) {
        const HostMatrix x = random(setting.tokens(), shape.in, 1);
        const HostMatrix weight = random(1, shape.in, 2);
        const HostMatrix ds = own_columns(setting.first, setting.batch, x.rows, 3, dtype());
        const HostMatrix h = reference::weighted(
            reference::rms_norm(x, HostMatrix(1, shape.in, 1.0), eps, 1), weight, offset);
        const DeviceMatrix device_x(backend(), x, 16);
        const DeviceMatrix device_weight(backend(), weight);
        const DeviceMatrix dx(backend(), x, 8);
        for (const bool begins : {false, true}) {
            auto expected = setting.first.gradient_starts(setting.batch, true);
            if (begins) {
                setting.first.begin_gradients();
                expected = setting.first.gradient_starts(setting.batch, true);
            }
            const DeviceMatrix device_ds(backend(), ds, 1);
            backend().rms_norm_backward({device_x.view(), device_weight.data(), eps, 1, dx.view(),
                                         dx.view(), false, device_ds.view(), offset});
            const LoraTarget target = setting.first.target(device_ds.view());
            backend().lora_grad_a(
                {device_x.view(), {&target, 1}, setting.rows(), device_weight.data(), offset});
            reference::add_lora_grad_a(h, ds, setting.first.factors(), setting.batch, expected);
            expect_gradients(setting.first, expected, true);
        }
    });
}

TEST_P(LoraTest, GradientsBeginAnew) {
    for_each_setting([&](const LoraShape& shape, Setting& setting) {
        setting.first.begin_gradients();
        const HostMatrix dy = random(setting.tokens(), shape.out, 1);
        const HostMatrix x = random(setting.tokens(), shape.in, 2);
        const HostMatrix s = own_columns(setting.first, setting.batch, dy.rows, 3, dtype());
        const DeviceMatrix device_dy(backend(), dy, 8);
        const DeviceMatrix device_x(backend(), x, 16);
        const DeviceMatrix device_s(backend(), s, 1);
        const DeviceMatrix ds = junk(dy.rows, setting.first.columns());
        const LoraTarget target = setting.first.target(device_s.view());
        for (int times = 0; times < 2; ++times) {
            backend().lora_backward({device_dy.view(), target, ds.view(), setting.rows()});
            backend().lora_grad_a({device_x.view(), {&target, 1}, setting.rows()});
        }
        auto expected = setting.first.gradient_starts(setting.batch, false);
        reference::add_lora_grad_b(dy, s, setting.first.factors(), setting.batch, expected);
        expect_gradients(setting.first, expected, false);
        expected = setting.first.gradient_starts(setting.batch, true);
        reference::add_lora_grad_a(x, s, setting.first.factors(), setting.batch, expected);
        expect_gradients(setting.first, expected, true);
    });
}

TEST_P(LoraTest, ExpandBackwardOverwritesOrAccumulates) {
    for_each_setting([&](const LoraShape& shape, const Setting& setting) {
        const HostMatrix ds1 =
            own_columns(setting.first, setting.batch, setting.tokens(), 2, dtype());
        const HostMatrix ds2 =
            own_columns(setting.second, setting.batch, setting.tokens(), 3, dtype());
        const HostMatrix before = random(setting.tokens(), shape.in, 4);
        const DeviceMatrix device_ds1(backend(), ds1, 1);
        const DeviceMatrix device_ds2(backend(), ds2, 1);
        const std::vector<LoraTarget> targets{setting.first.target(device_ds1.view()),
                                              setting.second.target(device_ds2.view())};
        for (const bool accumulate : {false, true}) {
            HostMatrix expected = accumulate ? before : HostMatrix(before.rows, before.cols);
            reference::add_lora_dx(ds1, setting.first.factors(), setting.batch, expected);
            reference::add_lora_dx(ds2, setting.second.factors(), setting.batch, expected);
            const DeviceMatrix dx(backend(), before, 16);
            if (!accumulate) {
                backend().copy({dx.view(), junk(before.rows, before.cols).view()});
            }
            backend().lora_expand_backward({dx.view(), targets, setting.rows(), accumulate});
            expect_close(dx, expected, cat("dX, accumulate = ", accumulate));
        }
    });
}

TEST_P(LoraTest, PackPlacesFactorsAndLeavesOutNonFiniteOnes) {
    LoraLinear linear(backend(), 30, 17, ranks, 0, 1);
    std::vector<reference::LoraFactors> factors = linear.factors();
    std::vector<float> a(factors[0].a.values.begin(), factors[0].a.values.end());
    a[7] = std::numeric_limits<float>::quiet_NaN();
    a[8] = std::numeric_limits<float>::infinity();
    a[9] = std::numeric_limits<float>::max();  // infinite in bf16
    factors[0].a.values[7] = 0.0;
    factors[0].a.values[8] = 0.0;
    factors[0].a.values[9] = dtype() == DType::f32 ? a[9] : 0.0;
    std::vector<float> b(factors[3].b.values.begin(), factors[3].b.values.end());
    b[5] = -std::numeric_limits<float>::infinity();
    factors[3].b.values[5] = 0.0;
    const DeviceVector<float> bad_a(backend(), a);
    const DeviceVector<float> bad_b(backend(), b);
    std::vector<LoraSlot> slots = linear.slots();
    slots[0].a = bad_a.data();
    slots[3].b = bad_b.data();

    const DeviceMatrix b_pad = junk(17, linear.columns());
    const DeviceMatrix a_pad = junk(linear.columns(), 30);
    const LoraPack op{slots, b_pad.view(), a_pad.view()};
    backend().lora_pack({&op, 1});
    HostMatrix expected_b(17, linear.columns());
    HostMatrix expected_a(linear.columns(), 30);
    for (const auto& f : factors) {
        for (std::int32_t i = 0; i < f.rank; ++i) {
            for (std::int64_t k = 0; k < 30; ++k) {
                expected_a(f.column + i, k) = reference::rounded_to(dtype(), f.a(i, k));
            }
            for (std::int64_t n = 0; n < 17; ++n) {
                expected_b(n, f.column + i) = reference::rounded_to(dtype(), f.b(n, i));
            }
        }
    }
    EXPECT_EQ(b_pad.download().values, expected_b.values);
    EXPECT_EQ(a_pad.download().values, expected_a.values);
}

TEST_P(LoraTest, PackOfManyLinearsIsThatOfEach) {
    std::vector<std::unique_ptr<LoraLinear>> linears;
    std::vector<std::vector<LoraSlot>> slots;
    std::vector<DeviceMatrix> b_pads;
    std::vector<DeviceMatrix> a_pads;
    std::vector<LoraPack> ops;
    for (const auto& [in, out] : {std::pair{64, 40}, std::pair{136, 8}, std::pair{24, 512}}) {
        linears.push_back(
            std::make_unique<LoraLinear>(backend(), in, out, std::vector{4, 0, 3, 8, 17}, 0, 1));
        slots.push_back(linears.back()->slots());
    }
    constexpr std::int64_t columns = 48;
    const auto pads_of = [&](const LoraLinear& linear, std::int64_t ld) {
        const HostMatrix b(linear.factors()[0].b.rows, columns, 7.0);
        const HostMatrix a(columns, linear.factors()[0].a.cols, 7.0);
        b_pads.emplace_back(backend(), b, ld);
        a_pads.emplace_back(backend(), a, ld);
    };
    for (const std::int64_t ld : {16, 3}) {
        ops.clear();
        b_pads.clear();
        a_pads.clear();
        for (const auto& linear : linears) pads_of(*linear, ld);
        for (std::size_t i = 0; i < linears.size(); ++i) {
            ops.push_back({slots[i], b_pads[i].view(), a_pads[i].view()});
        }
        backend().lora_pack(ops);
        for (std::size_t i = 0; i < linears.size(); ++i) {
            HostMatrix b(b_pads[i].view().rows, columns);
            HostMatrix a(columns, a_pads[i].view().cols);
            for (const auto& f : linears[i]->factors()) {
                for (std::int32_t r = 0; r < f.rank; ++r) {
                    for (std::int64_t k = 0; k < a.cols; ++k) {
                        a(f.column + r, k) = reference::rounded_to(dtype(), f.a(r, k));
                    }
                    for (std::int64_t n = 0; n < b.rows; ++n) {
                        b(n, f.column + r) = reference::rounded_to(dtype(), f.b(n, r));
                    }
                }
            }
            EXPECT_EQ(b_pads[i].download().values, b.values) << i;
            EXPECT_EQ(a_pads[i].download().values, a.values) << i;
        }
    }
}

/// As q, k and v with joined products have it: S behind X itself.
TEST_P(LoraTest, ShrinkPutsAllTargetsBehindX) {
    for (const std::uint32_t dropout : {0U, 20000U}) {
        for (const std::int64_t in : {64, 30}) {
            const PackedSamples samples(backend(), {70, 1, 40});
            const std::vector<LoraSegment> segments{{1, 0, 70, 1}, {0, 71, 111, 2}};
            const LoraRows rows{segments, samples.rows()};
            const std::vector<LoraLinear> linears = [&] {
                std::vector<LoraLinear> made;
                made.emplace_back(backend(), in, 24, std::vector{8, 4}, dropout, 1);
                made.emplace_back(backend(), in, 8, std::vector{0, 5}, dropout, 2);
                made.emplace_back(backend(), in, 8, std::vector{17, 0}, dropout, 3);
                return made;
            }();
            constexpr std::int64_t width = 32;
            const HostMatrix values = random(111, in + 3 * width, 1);
            const DeviceMatrix wide(backend(), values, 16);
            const TensorView x = wide.view().col_range(0, in);
            std::vector<DeviceMatrix> s;
            for (int i = 0; i < 3; ++i) s.push_back(junk(111, width));
            std::vector<LoraTarget> targets;
            for (std::size_t i = 0; i < 3; ++i) targets.push_back(linears[i].target(s[i].view()));
            backend().lora_shrink({x, targets, rows, wide.view().col_range(in, 3 * width)});
            const HostMatrix after = wide.download();
            EXPECT_EQ(columns(after, 0, in).values, columns(values, 0, in).values);
            const reference::LoraBatch batch{segments, samples.positions(), samples.sample_ids()};
            for (std::size_t i = 0; i < 3; ++i) {
                const auto first = in + static_cast<std::int64_t>(i) * width;
                EXPECT_EQ(columns(after, first, width).values, s[i].download().values) << i;
                expect_close(s[i],
                             reference::lora_shrink(columns(values, 0, in), linears[i].factors(),
                                                    batch, width),
                             "S");
            }
        }
    }
}

TEST_P(LoraTest, PackFromAColumnOnLeavesTheOthersZero) {
    constexpr std::int64_t width = 48;
    for (const std::int64_t ld : {16, 3}) {
        for (const std::int64_t first : {0, 48, 96, 5}) {
            const LoraLinear linear(backend(), 64, 40, {4, 0, 3, 8, 17}, 0, 1);
            const DeviceMatrix b_pad(backend(), HostMatrix(40, 3 * width, 7.0), ld);
            const DeviceMatrix a_pad(backend(), HostMatrix(width, 64, 7.0), ld);
            const DeviceMatrix b_alone(backend(), HostMatrix(40, width, 7.0), ld);
            const DeviceMatrix a_alone(backend(), HostMatrix(width, 64, 7.0), ld);
            const std::vector<LoraPack> ops{{linear.slots(), b_pad.view(), a_pad.view(), first},
                                            {linear.slots(), b_alone.view(), a_alone.view()}};
            backend().lora_pack(ops);
            const HostMatrix b = b_pad.download();
            const HostMatrix alone = b_alone.download();
            HostMatrix expected(40, 3 * width);
            for (std::int64_t n = 0; n < 40; ++n) {
                for (std::int64_t c = 0; c < width; ++c) expected(n, first + c) = alone(n, c);
            }
            EXPECT_EQ(b.values, expected.values) << first;
            EXPECT_EQ(a_pad.download().values, a_alone.download().values);
        }
    }
}

TEST_P(LoraTest, OneAdaptersNotANumberStaysWithItsRows) {
    LoraLinear linear(backend(), 24, 40, {4, 4}, 0, 1);
    std::vector<LoraSlot> slots = linear.slots();
    const DeviceVector<float> bad(
        backend(), std::vector<float>(4 * 40, std::numeric_limits<float>::infinity()));
    slots[0].a = bad.data();
    slots[0].b = bad.data();
    const std::vector<LoraSegment> segments{{0, 0, 30, 0}, {1, 30, 60, 0}};
    const PackedSamples samples(backend(), {30, 30});
    const LoraRows rows{segments, samples.rows()};
    const DeviceMatrix x(backend(), random(60, 24, 1));
    const DeviceMatrix s(backend(), HostMatrix(60, linear.columns()));
    const DeviceMatrix y(backend(), random(60, 40, 2));
    const std::vector<LoraTarget> targets{{slots, s.view()}};
    backend().lora_shrink({x.view(), targets, rows});
    backend().lora_expand({targets[0], y.view(), rows});
    const HostMatrix result = y.download();
    for (std::int64_t row = 30; row < 60; ++row) {
        for (std::int64_t j = 0; j < 40; ++j) EXPECT_TRUE(std::isfinite(result(row, j)));
    }
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(LoraTest);

}  // namespace
}  // namespace loratrain

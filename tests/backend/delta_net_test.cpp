#include "reference/delta_net.h"

#include <cstring>

#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"
#include "support/quick_lengths.h"

namespace loratrain {
namespace {

using reference::DeltaGradients;
using reference::DeltaInput;
using reference::HostMatrix;

constexpr float delta_eps = 1e-6F;

const std::vector<std::int32_t> ragged_lengths{1, 3, 4, 5, 63, 64, 65, 1, 130};

/// The gradient of sum(weights of(x)) with respect to x, by central slopes_by_differences.
template <class Of>
HostMatrix slopes_by_differences(const HostMatrix& x, const HostMatrix& weights, const Of& of) {
    constexpr double step = 1e-5;
    HostMatrix gradient(x.rows, x.cols);
    HostMatrix moved = x;
    const auto sum = [&] {
        const HostMatrix y = of(moved);
        double total = 0.0;
        for (std::size_t i = 0; i < y.values.size(); ++i) total += weights.values[i] * y.values[i];
        return total;
    };
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        moved.values[i] = x.values[i] + step;
        const double above = sum();
        moved.values[i] = x.values[i] - step;
        gradient.values[i] = (above - sum()) / (2.0 * step);
        moved.values[i] = x.values[i];
    }
    return gradient;
}

void expect_delta(const DeviceMatrix& got, const HostMatrix& expected, const std::string& what) {
    // bf16 rounds what every later row reads of a row.
    const bool single = got.view().dtype == DType::f32;
    expect_close(got.download().values, expected.values, Tolerance{single ? 2e-5 : 1e-1}, what);
}

class CausalConvTest : public BackendTest {};

TEST_P(CausalConvTest, AgreesWithLoops) {
    for (const std::int64_t width : {1, 2, 4, 8}) {
        for (const std::int64_t cols : {8, 72, 1030}) {
            const PackedSamples samples(backend(), quick_lengths(ragged_lengths));
            const std::int64_t tokens = samples.rows().tokens;
            const HostMatrix x = random(tokens, cols, 1);
            const HostMatrix w = random(cols, width, 2);
            const HostMatrix dy = random(tokens, cols, 3);
            const DeviceMatrix device_x(backend(), x, 8);
            const DeviceMatrix device_w(backend(), w);
            const DeviceMatrix device_dy(backend(), dy, 16);
            const HostMatrix expected = reference::causal_conv(x, w, samples.offsets());
            const DeviceMatrix y(backend(), HostMatrix(tokens, cols, 1.0 / 0.0), 3);
            const DeviceMatrix aligned(backend(), HostMatrix(tokens, cols, 1.0 / 0.0), 8);
            const DeviceMatrix dx(backend(), HostMatrix(tokens, cols, 1.0 / 0.0), 8);
            const CausalConv op{device_x.view(), device_w.data(), width, y.view(), samples.rows()};
            backend().causal_conv(op);
            backend().causal_conv(
                {device_x.view(), device_w.data(), width, aligned.view(), samples.rows()});
            backend().causal_conv_backward({op, device_dy.view(), dx.view()});
            expect_close(y, expected, cat("convolution of ", width));
            expect_close(aligned, expected, cat("convolution of ", width, " by pieces"));
            expect_close(dx, reference::causal_conv_backward(x, w, samples.offsets(), dy),
                         cat("its gradient, of ", width));
        }
    }
}

TEST(DeltaNetReference, GradientsAgreeWithDifferences) {
    const std::vector<std::int32_t> offsets{0, 1, 6, 10};
    const HostMatrix x = reference::random_matrix(10, 6, 1);
    const HostMatrix w = reference::random_matrix(6, 4, 2);
    const HostMatrix of_y = reference::random_matrix(10, 6, 3);
    const Tolerance tolerance{1e-8};
    expect_close(reference::causal_conv_backward(x, w, offsets, of_y).values,
                 slopes_by_differences(x, of_y,
                                       [&](const HostMatrix& moved) {
                                           return reference::causal_conv(moved, w, offsets);
                                       })
                     .values,
                 tolerance, "convolution");

    DeltaInput in{reference::random_matrix(10, 2 * 3, 4),
                  reference::random_matrix(10, 2 * 3, 5),
                  reference::random_matrix(10, 4 * 2, 6),
                  HostMatrix(10, 4),
                  HostMatrix(10, 4),
                  2,
                  4,
                  offsets};
    for (std::size_t i = 0; i < in.g.values.size(); ++i) {
        in.g.values[i] = -0.1 * static_cast<double>(i % 7);
        in.beta.values[i] = 0.05 + 0.1 * static_cast<double>(i % 9);
    }
    const HostMatrix of_o = reference::random_matrix(10, 8, 7);
    const DeltaGradients got = reference::delta_rule_backward(in, of_o);
    const auto check = [&](HostMatrix DeltaInput::*field, const HostMatrix& gradient) {
        const HostMatrix expected =
            slopes_by_differences(in.*field, of_o, [&](const HostMatrix& moved) {
                DeltaInput changed = in;
                changed.*field = moved;
                return reference::delta_rule(changed);
            });
        expect_close(gradient.values, expected.values, tolerance, "delta rule");
    };
    check(&DeltaInput::q, got.dq);
    check(&DeltaInput::k, got.dk);
    check(&DeltaInput::v, got.dv);
    check(&DeltaInput::g, got.d_g);
    check(&DeltaInput::beta, got.d_beta);
}

struct RuleShape {
    std::int64_t key_heads, value_heads, key_dim, value_dim;
    std::vector<std::int32_t> lengths;
    double decay = 0.5;  ///< the most of -g
};

const std::vector<RuleShape> rule_shapes{
    {1, 1, 8, 8, {1}},
    {1, 2, 16, 8, {5, 1, 2}},
    {2, 2, 16, 32, {64, 65, 1, 127}},
    {2, 6, 32, 32, ragged_lengths},
    {2, 4, 64, 64, {200, 3, 64}, 8.0},
    {1, 2, 128, 128, {300, 1, 70}, 0.02},
    {3, 3, 24, 40, {129, 2}},
    {2, 4, 64, 64, std::vector<std::int32_t>(150, 1)},
};

/// A rule's operands on a backend. q, k and v are columns of one matrix, as layers have them; what
/// is written holds infinities.
class DeviceRule {
  public:
    DeviceRule(Backend& backend, const DeltaInput& in, const PackedSamples& samples)
        : mixed_(backend, beside({&in.q, &in.k, &in.v}), 8),
          g_(backend, in.g, 0, DType::f32),
          beta_(backend, in.beta, 0, DType::f32),
          o_(backend, HostMatrix(in.v.rows, in.v.cols, 1.0 / 0.0), 8),
          d_mixed_(backend, HostMatrix(in.v.rows, mixed_.view().cols, 1.0 / 0.0), 16),
          d_g_(backend, HostMatrix(in.g.rows, in.g.cols, 1.0 / 0.0), 0, DType::f32),
          d_beta_(backend, HostMatrix(in.g.rows, in.g.cols, 1.0 / 0.0), 0, DType::f32),
          states_(backend, std::vector<float>(
                               static_cast<std::size_t>(delta_states(in.v.rows) * in.value_heads *
                                                        in.key_dim() * in.value_dim()),
                               std::numeric_limits<float>::quiet_NaN())) {
        const std::int64_t keys = in.q.cols;
        op_ = {mixed_.view().col_range(0, keys),
               mixed_.view().col_range(keys, keys),
               mixed_.view().col_range(2 * keys, in.v.cols),
               g_.view(),
               beta_.view(),
               o_.view(),
               in.key_heads,
               in.value_heads,
               states_.data(),
               samples.rows()};
    }

    const DeltaRule& op() const { return op_; }
    DeltaRuleBackward backward(const TensorView& d_o) const {
        const std::int64_t keys = op_.q.cols;
        return {op_,
                d_o,
                d_mixed_.view().col_range(0, keys),
                d_mixed_.view().col_range(keys, keys),
                d_mixed_.view().col_range(2 * keys, op_.v.cols),
                d_g_.view(),
                d_beta_.view()};
    }
    const DeviceMatrix& o() const { return o_; }
    const DeviceMatrix& d_mixed() const { return d_mixed_; }
    const DeviceMatrix& d_g() const { return d_g_; }
    const DeviceMatrix& d_beta() const { return d_beta_; }

    static HostMatrix beside(std::initializer_list<const HostMatrix*> parts) {
        std::int64_t cols = 0;
        for (const HostMatrix* part : parts) cols += part->cols;
        HostMatrix all((*parts.begin())->rows, cols);
        std::int64_t first = 0;
        for (const HostMatrix* part : parts) {
            for (std::int64_t t = 0; t < all.rows; ++t) {
                for (std::int64_t j = 0; j < part->cols; ++j) all(t, first + j) = (*part)(t, j);
            }
            first += part->cols;
        }
        return all;
    }

  private:
    DeviceMatrix mixed_;
    DeviceMatrix g_;
    DeviceMatrix beta_;
    DeviceMatrix o_;
    DeviceMatrix d_mixed_;
    DeviceMatrix d_g_;
    DeviceMatrix d_beta_;
    DeviceVector<float> states_;
    DeltaRule op_;
};

class DeltaRuleTest : public BackendTest {
  protected:
    DeltaInput input(const RuleShape& shape, const std::vector<std::int32_t>& offsets) const {
        return reference::random_delta_input(
            {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim}, offsets, dtype(),
            shape.decay);
    }
};

TEST_P(DeltaRuleTest, ForwardAndBackwardAgreeWithLoops) {
    for (const RuleShape& shape : rule_shapes) {
        const PackedSamples samples(backend(), quick_lengths(shape.lengths));
        const DeltaInput in = input(shape, samples.offsets());
        const HostMatrix d_o = random(in.v.rows, in.v.cols, 6);
        const DeviceMatrix device_d_o(backend(), d_o, 8);
        const DeviceRule rule(backend(), in, samples);
        backend().delta_rule(rule.op());
        const std::string what =
            cat("delta rule of ", shape.value_heads, " heads of ", shape.key_dim);
        expect_delta(rule.o(), reference::delta_rule(in), what);
        backend().delta_rule_backward(rule.backward(device_d_o.view()));
        const DeltaGradients expected = reference::delta_rule_backward(in, d_o);
        expect_delta(rule.d_mixed(), DeviceRule::beside({&expected.dq, &expected.dk, &expected.dv}),
                     what + ": dq, dk, dv");
        const Tolerance gates{dtype() == DType::f32 ? 2e-5 : 1e-1};
        expect_close(rule.d_g().download().values, expected.d_g.values, gates, what + ": d_g");
        expect_close(rule.d_beta().download().values, expected.d_beta.values, gates,
                     what + ": d_beta");
    }
}

/// Rows of each sample are those of the sample alone, wherever it lies, and two runs are equal to
/// the bit.
TEST_P(DeltaRuleTest, PackedIsAloneAndRepeats) {
    const RuleShape shape{2, 4, 32, 32, ragged_lengths};
    const std::vector<std::int32_t> lengths = quick_lengths(shape.lengths);
    const PackedSamples samples(backend(), lengths);
    const DeltaInput in = input(shape, samples.offsets());
    const DeviceMatrix d_o(backend(), random(in.v.rows, in.v.cols, 6));
    const auto run = [&](const DeltaInput& of, const PackedSamples& rows, const TensorView& dy) {
        const DeviceRule rule(backend(), of, rows);
        backend().delta_rule(rule.op());
        backend().delta_rule_backward(rule.backward(dy));
        return std::array<HostMatrix, 4>{rule.o().download(), rule.d_mixed().download(),
                                         rule.d_g().download(), rule.d_beta().download()};
    };
    const auto packed = run(in, samples, d_o.view());
    const auto again = run(in, samples, d_o.view());
    for (std::size_t i = 0; i < packed.size(); ++i) {
        EXPECT_EQ(packed[i].values, again[i].values) << i;
    }
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        const std::int64_t first = samples.offsets()[s];
        const auto part = [&](const HostMatrix& all) {
            HostMatrix rows(lengths[s], all.cols);
            std::copy_n(all.values.begin() + first * all.cols, rows.values.size(),
                        rows.values.begin());
            return rows;
        };
        const PackedSamples alone(backend(), {lengths[s]});
        const DeltaInput of{part(in.q),    part(in.k),   part(in.v),     part(in.g),
                            part(in.beta), in.key_heads, in.value_heads, alone.offsets()};
        const auto got = run(of, alone, d_o.view().row_range(first, lengths[s]));
        for (std::size_t i = 0; i < got.size(); ++i) {
            expect_close(got[i].values, part(packed[i]).values, Tolerance{2e-6},
                         cat("sample ", s, ", result ", i));
        }
    }
}

class DeltaGatesTest : public BackendTest {};

TEST_P(DeltaGatesTest, AgreeWithLoops) {
    for (const std::int64_t heads : {1, 4, 48}) {
        HostMatrix a = random(19, heads, 1);
        const HostMatrix b = random(19, heads, 2);
        for (double& value : a.values) value = reference::rounded_to(dtype(), 12.0 * value);
        const HostMatrix a_log = reference::random_matrix(1, heads, 3);
        const HostMatrix dt_bias = reference::random_matrix(1, heads, 4);
        const HostMatrix d_g = reference::random_matrix(19, heads, 5);
        const HostMatrix d_beta = reference::random_matrix(19, heads, 6);
        const DeviceMatrix device_a(backend(), a, 8);
        const DeviceMatrix device_b(backend(), b, 3);
        const DeviceVector<float> device_a_log = device_floats(backend(), a_log);
        const DeviceVector<float> device_dt_bias = device_floats(backend(), dt_bias);
        const DeviceMatrix g(backend(), HostMatrix(19, heads), 0, DType::f32);
        const DeviceMatrix beta(backend(), HostMatrix(19, heads), 0, DType::f32);
        const DeltaGates op{device_a.view(),       device_b.view(), device_a_log.data(),
                            device_dt_bias.data(), g.view(),        beta.view()};
        backend().delta_gates(op);
        HostMatrix expected_beta = b;
        for (double& value : expected_beta.values) value = reference::sigmoid(value);
        const Tolerance single{1e-5};  // g and beta are fp32 in every compute type
        expect_close(g.download().values, reference::decay_gates(a, a_log, dt_bias).values, single,
                     "g");
        expect_close(beta.download().values, expected_beta.values, single, "beta");

        const DeviceMatrix device_d_g(backend(), d_g, 0, DType::f32);
        const DeviceMatrix device_d_beta(backend(), d_beta, 0, DType::f32);
        backend().delta_gates_backward(
            {op, device_d_g.view(), device_d_beta.view(), device_a.view(), device_b.view()});
        const auto of_a = [&](const HostMatrix& x) {
            return reference::decay_gates(x, a_log, dt_bias);
        };
        HostMatrix db = expected_beta;
        for (std::size_t i = 0; i < db.values.size(); ++i) {
            db.values[i] *= (1.0 - db.values[i]) * d_beta.values[i];
        }
        expect_close(device_a, slopes_by_differences(a, d_g, of_a), "da over a");
        expect_close(device_b, db, "db over b");
    }
}

class GatedNormTest : public BackendTest {};

TEST_P(GatedNormTest, AgreesWithLoopsAlsoInPlace) {
    for (const std::int64_t width : {8, 30, 72, 128, 256}) {
        for (const std::int64_t heads : {1, 4}) {
            const std::int64_t rows = 3;
            const HostMatrix o = random(rows, heads * width, 1);
            const HostMatrix z = random(rows, heads * width, 2);
            const HostMatrix w = random(1, width, 3);
            const HostMatrix dy = random(rows, heads * width, 4);
            const DeviceMatrix device_o(backend(), o, 8);
            const DeviceMatrix device_z(backend(), z, 16);
            const DeviceMatrix device_w(backend(), w);
            const DeviceMatrix device_dy(backend(), dy, 8);
            const DeviceMatrix y(backend(), HostMatrix(rows, heads * width), 8);
            const GatedNorm op{device_o.view(), device_z.view(), device_w.data(),
                               delta_eps,       heads,           y.view()};
            backend().gated_norm(op);
            const auto of_o = [&](const HostMatrix& x) {
                return reference::gated_norm(x, z, w, delta_eps);
            };
            const auto of_z = [&](const HostMatrix& x) {
                return reference::gated_norm(o, x, w, delta_eps);
            };
            expect_close(y, of_o(o), "gated norm");
            const HostMatrix first = y.download();
            const DeviceMatrix again(backend(), HostMatrix(rows, heads * width, 1.0 / 0.0), 8);
            const DeviceMatrix d_z(backend(), HostMatrix(rows, heads * width, 1.0 / 0.0), 8);
            GatedNorm with_y = op;
            with_y.y = again.view();
            GatedNorm without_y = op;
            without_y.y = {};
            const HostMatrix d_o = slopes_by_differences(o, dy, of_o);
            backend().gated_norm_backward(
                {without_y, device_dy.view(), device_dy.view(), d_z.view()});
            expect_close(device_dy, d_o, "d_o over dy");
            const DeviceMatrix same_dy(backend(), dy, 8);
            backend().gated_norm_backward(
                {with_y, same_dy.view(), device_o.view(), device_z.view()});
            EXPECT_EQ(again.download().values, first.values) << "the norm made again";
            EXPECT_EQ(device_o.download().values, device_dy.download().values) << "d_o over o";
            EXPECT_EQ(device_z.download().values, d_z.download().values) << "d_z over z";
            expect_close(d_z, slopes_by_differences(z, dy, of_z), "d_z");
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(CausalConvTest);
LORATRAIN_FOR_EACH_BACKEND(DeltaRuleTest);
LORATRAIN_FOR_EACH_BACKEND(DeltaGatesTest);
LORATRAIN_FOR_EACH_BACKEND(GatedNormTest);

}  // namespace
}  // namespace loratrain

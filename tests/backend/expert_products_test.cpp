#include "support/expert_products.h"
#include "support/backend_case.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr ProductCase product_cases[] = {
    {{0, 4, 2, true}, 16, 8},     {{1, 4, 2, true}, 64, 32},      {{9, 8, 3, true}, 72, 40},
    {{40, 6, 2, true}, 30, 20},   {{300, 3, 1, true}, 136, 104},  {{257, 6, 2, true}, 256, 128},
    {{70, 40, 8, false}, 24, 12}, {{700, 12, 2, true}, 200, 264},
};

class ExpertProductsTest : public BackendTest {
  protected:
    using Made = MadeRoutes;
    void check_gate_up(bool with_lora, bool with_bias, Activation activation = Activation::silu);
    void check_down_backward(bool with_lora, bool with_bias = false,
                             Activation activation = Activation::silu);
};

void expect_weights_near(const std::vector<float>& found, const std::vector<double>& expected,
                         double limit) {
    ASSERT_EQ(found.size(), expected.size());
    double largest = 1e-30;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], limit * largest) << i;
    }
}

TEST_P(ExpertProductsTest, MultiplyAsLoops) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
        const DeviceMatrix device_w(backend(), w);
        for (const bool backward : {false, true}) {
            const HostMatrix x = random(copies, backward ? of.size : of.hidden, 4);
            const HostMatrix expected = expert_product(made.routes, x, w, backward);
            const DeviceMatrix device_x(backend(), x, 8);
            const DeviceMatrix y(backend(), HostMatrix(copies, expected.cols), 16);
            const ExpertProduct op{device_x.view(), device_w.view(), y.view(), made.device.routes,
                                   backward};
            backend().multiply_experts(op);
            expect_close(y, expected, "multiply_experts");
            const HostMatrix first = y.download();
            backend().multiply_experts(op);
            EXPECT_EQ(y.download().values, first.values) << "two runs";
        }
    }
}

TEST_P(ExpertProductsTest, GateUpAsLoops) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix h = random(of.router.tokens, of.hidden, 5);
        const HostMatrix w = random(of.router.experts * 2 * of.size, of.hidden, 6);
        const HostMatrix expected = expert_product(made.routes, gathered(made.routes, h), w, false);
        const DeviceMatrix device_h(backend(), h, 8);
        const DeviceMatrix device_w(backend(), w);
        const DeviceMatrix rows(backend(), HostMatrix(copies, of.hidden));
        const DeviceMatrix product(backend(), HostMatrix(copies, of.size), 8);
        for (const bool with_product : {true, false}) {
            const DeviceMatrix gate_up(backend(), HostMatrix(copies, 2 * of.size), 8);
            backend().expert_gate_up({device_h.view(), device_w.view(), gate_up.view(),
                                      with_product ? product.view() : TensorView{}, rows.view(),
                                      made.device.routes});
            expect_close(gate_up, expected, "gate_up");
            // Of what is stored.
            expect_close(product, reference::gated_product(gate_up.download()), "product");
        }
    }
}

/// So that some are beyond the clamps of clamped_swiglu.
void widen(HostMatrix& x, DType dtype) {
    for (double& value : x.values) value = reference::rounded_to(dtype, 9.0 * value);
}

void ExpertProductsTest::check_gate_up(bool with_lora, bool with_bias, Activation activation) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix h = random(of.router.tokens, of.hidden, 5);
        const HostMatrix w = random(of.router.experts * 2 * of.size, of.hidden, 6);
        const HostMatrix bias =
            reference::random_matrix(of.router.experts, 2 * of.size, 11, DType::f32);
        HostMatrix expected = expert_product(made.routes, gathered(made.routes, h), w, false);
        if (with_bias) add_bias_rows(made.routes, bias, expected);
        const AddedToProduct lora(backend(), made.routes, of.router, of.size, true, 2);
        const DeviceMatrix device_h(backend(), h, 8);
        const DeviceMatrix device_w(backend(), w);
        const DeviceVector<float> device_bias = device_floats(backend(), bias);
        const DeviceMatrix rows(backend(), HostMatrix(copies, of.hidden));
        const DeviceMatrix product(backend(), HostMatrix(copies, of.size), 8);
        const DeviceMatrix gate_up(backend(), HostMatrix(copies, 2 * of.size), 8);
        std::vector<ExpertLora> loras;
        for (std::size_t i = 0; with_lora && i < 2; ++i) {
            const std::int64_t first = static_cast<std::int64_t>(i) * of.size;
            expected = with_columns(
                expected, lora.added(made.routes, i, columns_of(expected, first, of.size)), first);
            loras.push_back(
                lora.op(i, gate_up.view().col_range(first, of.size), made.device.routes));
        }
        ExpertGateUp op{device_h.view(), device_w.view(),    gate_up.view(), product.view(),
                        rows.view(),     made.device.routes, activation,     loras};
        if (with_bias) op.bias = device_bias.data();
        backend().expert_gate_up(op);
        expect_close(gate_up, expected, "gate_up");
        expect_close(product, reference::gated_product(gate_up.download(), activation), "product");
    }
}

TEST_P(ExpertProductsTest, GateUpWithLoraAsLoops) {
    check_gate_up(true, false);
}

TEST_P(ExpertProductsTest, GateUpWithBiasesAsLoops) {
    check_gate_up(false, true);
}

TEST_P(ExpertProductsTest, ClampedGateUpWithBiasesAsLoops) {
    check_gate_up(false, true, Activation::clamped_swiglu);
}

TEST_P(ExpertProductsTest, ClampedGateUpWithBiasesAndLoraAsLoops) {
    check_gate_up(true, true, Activation::clamped_swiglu);
}

TEST_P(ExpertProductsTest, MultiplyWithBiasesAsLoops) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix x = random(copies, of.hidden, 4);
        const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
        const HostMatrix bias =
            reference::random_matrix(of.router.experts, of.size, 11, DType::f32);
        HostMatrix expected = expert_product(made.routes, x, w, false);
        add_bias_rows(made.routes, bias, expected);
        const AddedToProduct lora(backend(), made.routes, of.router, of.size, true, 2);
        const DeviceMatrix device_x(backend(), x, 8);
        const DeviceMatrix device_w(backend(), w);
        const DeviceVector<float> device_bias = device_floats(backend(), bias);
        const DeviceMatrix y(backend(), HostMatrix(copies, of.size), 16);
        ExpertProduct op{device_x.view(), device_w.view(), y.view(), made.device.routes};
        op.bias = device_bias.data();
        backend().multiply_experts(op);
        expect_close(y, expected, "multiply_experts with biases");
        const ExpertLora added[] = {lora.op(0, y.view(), made.device.routes),
                                    lora.op(1, y.view(), made.device.routes)};
        op.added = added;
        for (const std::size_t i : {0, 1}) expected = lora.added(made.routes, i, expected);
        backend().multiply_experts(op);
        expect_close(y, expected, "multiply_experts with biases and LoRA");
    }
}

TEST_P(ExpertProductsTest, AddLoraAsLoops) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
        const DeviceMatrix device_w(backend(), w);
        for (const bool backward : {false, true}) {
            const HostMatrix x = random(copies, backward ? of.size : of.hidden, 4);
            HostMatrix expected = expert_product(made.routes, x, w, backward);
            const AddedToProduct lora(backend(), made.routes, of.router, expected.cols, !backward,
                                      2);
            for (const std::size_t i : {0, 1}) expected = lora.added(made.routes, i, expected);
            const DeviceMatrix device_x(backend(), x, 8);
            const DeviceMatrix y(backend(), HostMatrix(copies, expected.cols), 16);
            const ExpertLora added[] = {lora.op(0, y.view(), made.device.routes),
                                        lora.op(1, y.view(), made.device.routes)};
            backend().multiply_experts(
                {device_x.view(), device_w.view(), y.view(), made.device.routes, backward, added});
            expect_close(y, expected, "multiply_experts with LoRA");
            const HostMatrix first = y.download();
            backend().multiply_experts(
                {device_x.view(), device_w.view(), y.view(), made.device.routes, backward, added});
            EXPECT_EQ(y.download().values, first.values) << "two runs";
        }
    }
}

void ExpertProductsTest::check_down_backward(bool with_lora, bool with_bias,
                                             Activation activation) {
    for (const ProductCase& of : product_cases) {
        const Made made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix dy = random(of.router.tokens, of.hidden, 7);
        const HostMatrix w = random(of.router.experts * of.hidden, of.size, 8);
        HostMatrix gate_up = random(copies, 2 * of.size, 9);
        if (activation == Activation::clamped_swiglu) widen(gate_up, dtype());
        HostMatrix inner = expert_product(made.routes, gathered(made.routes, dy), w, true);
        const AddedToProduct lora(backend(), made.routes, of.router, of.size, false, 1);
        if (with_lora) inner = lora.added(made.routes, 0, inner);
        const HostMatrix product = reference::gated_product(gate_up, activation);
        const HostMatrix bias =
            reference::random_matrix(of.router.experts, of.hidden, 11, DType::f32);
        HostMatrix biases(copies, of.hidden);
        add_bias_rows(made.routes, bias, biases);
        std::vector<double> d_weights(static_cast<std::size_t>(copies));
        const std::vector<float> weights_of_rows = made.device.weights.download();
        for (std::int64_t i = 0; i < copies; ++i) {
            const std::int64_t place = made.routes.places[static_cast<std::size_t>(i)];
            for (std::int64_t c = 0; c < of.size; ++c) {
                d_weights[static_cast<std::size_t>(i)] += inner(place, c) * product(place, c);
                inner(place, c) *= weights_of_rows[static_cast<std::size_t>(i)];
            }
            for (std::int64_t c = 0; with_bias && c < of.hidden; ++c) {
                d_weights[static_cast<std::size_t>(i)] +=
                    dy(i / of.router.per_token, c) * biases(place, c);
            }
        }
        const DeviceVector<float> device_bias = device_floats(backend(), bias);
        const DeviceMatrix device_dy(backend(), dy, 8);
        const DeviceMatrix device_w(backend(), w);
        const DeviceMatrix device_gate_up(backend(), gate_up);
        const DeviceMatrix d_gate_up(backend(), HostMatrix(copies, 2 * of.size), 8);
        const DeviceMatrix rows(backend(), HostMatrix(copies, of.hidden));
        const DeviceMatrix made_product(backend(), HostMatrix(copies, of.size), 8);
        const DeviceMatrix made_inner(backend(), HostMatrix(copies, of.size));
        const DeviceVector<float> found_d(
            backend(), std::vector<float>(static_cast<std::size_t>(copies), 3.0F));
        std::vector<ExpertLora> added;
        if (with_lora) added.push_back(lora.op(0, made_inner.view(), made.device.routes));
        ExpertDownBackward op{device_dy.view(),
                              device_w.view(),
                              device_gate_up.view(),
                              d_gate_up.view(),
                              found_d.data(),
                              rows.view(),
                              made_product.view(),
                              made_inner.view(),
                              made.device.routes,
                              activation,
                              added};
        if (with_bias) op.bias = device_bias.data();
        backend().expert_down_backward(op);
        expect_close(d_gate_up, reference::gated_gradient(gate_up, inner, activation), "d_gate_up");
        expect_close(made_product, product, "product");
        op.product.data = nullptr;
        if (backend().takes_at_once(op)) {
            const HostMatrix before = d_gate_up.download();
            backend().expert_down_backward(op);
            EXPECT_EQ(d_gate_up.download().values, before.values);
        }
        expect_weights_near(found_d.download(), d_weights, dtype() == DType::f32 ? 1e-5 : 1e-2);
        expect_close(device_gate_up, gate_up, "gate_up is only read");
    }
}

TEST_P(ExpertProductsTest, DownBackwardAsLoops) {
    check_down_backward(false);
}

TEST_P(ExpertProductsTest, DownBackwardWithLoraAsLoops) {
    check_down_backward(true);
}

TEST_P(ExpertProductsTest, DownBackwardWithBiasesAsLoops) {
    check_down_backward(false, true);
}

TEST_P(ExpertProductsTest, ClampedDownBackwardAsLoops) {
    check_down_backward(false, true, Activation::clamped_swiglu);
}

TEST_P(ExpertProductsTest, ClampedDownBackwardWithLoraAsLoops) {
    check_down_backward(true, true, Activation::clamped_swiglu);
}

TEST_P(ExpertProductsTest, RefuseShapesThatDoNotFit) {
    const ProductCase of{{4, 4, 2, true}, 8, 8};
    const Made made(backend(), of);
    const DeviceMatrix x(backend(), HostMatrix(8, 8));
    const DeviceMatrix y(backend(), HostMatrix(8, 16));
    const DeviceMatrix w(backend(), HostMatrix(4 * 8, 8));
    EXPECT_THROW(
        backend().multiply_experts({x.view(), w.view(), y.view(), made.device.routes, false}),
        std::exception);
    const DeviceMatrix rows(backend(), HostMatrix(8, 8));
    const DeviceVector<float> bias = device_floats(backend(), HostMatrix(4, 8));
    ExpertProduct backward{x.view(), w.view(), rows.view(), made.device.routes, true};
    EXPECT_NO_THROW(backend().multiply_experts(backward));
    backward.bias = bias.data();
    EXPECT_THROW(backend().multiply_experts(backward), std::exception) << "a bias backward";
    EXPECT_THROW(
        backend().expert_gate_up({x.view(), w.view(), y.view(), {}, x.view(), made.device.routes}),
        std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertProductsTest);
INSTANTIATE_TEST_SUITE_P(SharedLimits, ExpertProductsTest, testing::ValuesIn(shared_limit_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace loratrain

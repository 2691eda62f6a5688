#include <cmath>

#include "base/e4m3.h"
#include "support/backend_case.h"
#include "support/expert_products.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr ProductCase code_cases[] = {
    {{0, 4, 2, true}, 16, 16},      {{1, 4, 2, true}, 64, 32},     {{9, 8, 3, true}, 80, 48},
    {{300, 3, 1, true}, 144, 112},  {{257, 6, 2, true}, 256, 128}, {{70, 40, 8, false}, 32, 16},
    {{700, 12, 2, true}, 208, 272},
};

/// A row's codes times its scale, after its columns were multiplied by column_scales (without any:
/// 1).
void code_row(HostMatrix& x, std::int64_t row, const float* column_scales) {
    const auto value = [&](std::int64_t col) {
        const auto of = static_cast<float>(x(row, col));
        return column_scales == nullptr ? of : of * column_scales[col];
    };
    float largest = 0.0F;
    for (std::int64_t col = 0; col < x.cols; ++col) {
        largest = std::max(largest, std::fabs(value(col)));
    }
    const RowCoding coding = row_coding(largest);
    for (std::int64_t col = 0; col < x.cols; ++col) {
        x(row, col) = static_cast<double>(from_e4m3(to_e4m3(value(col) * coding.inverse))) *
                      static_cast<double>(coding.scale);
    }
}

/// W [E N, K] of all experts on the host, and its codes in a backend's memory.
class CodedExperts {
  public:
    CodedExperts(Backend& backend, const HostMatrix& w, std::int64_t experts, std::int64_t copies)
        : effective(w),
          codes_(w),
          n_(w.rows / experts),
          device_codes_(backend, bytes(w.rows * w.cols)),
          scales_(backend, std::vector<float>(static_cast<std::size_t>(w.rows))),
          transposed_(backend, bytes(w.rows * w.cols)),
          ones_(backend, std::vector<float>(static_cast<std::size_t>(experts * w.cols), 1.0F)),
          rows_(backend, bytes(copies * widest())),
          row_scales_(backend, std::vector<float>(static_cast<std::size_t>(copies))) {
        const DeviceMatrix dense(backend, w);
        ops = {{device_codes_.data(), scales_.data(), w.rows, w.cols, w.cols},
               {transposed_.data(), ones_.data(), experts * w.cols, n_, n_},
               {rows_.data(), row_scales_.data(), copies, widest(), widest()}};
        backend.quantize_rows({dense.view(), nullptr, ops.weights});
        for (std::int64_t e = 0; e < experts; ++e) {
            backend.transpose_codes(
                {ops.transposed.row_range(e * w.cols, w.cols), ops.weights.row_range(e * n_, n_)});
        }
        host_scales_ = scales_.download();
        for (std::int64_t row = 0; row < w.rows; ++row) {
            code_row(effective, row, nullptr);
            const double scale = host_scales_[static_cast<std::size_t>(row)];
            for (std::int64_t col = 0; col < w.cols; ++col) {
                codes_(row, col) = effective(row, col) / scale;
            }
        }
    }

    /// x in codes times codes, forward or backward.
    HostMatrix product(const reference::Routes& routes, HostMatrix x, bool backward) const {
        for (std::size_t e = 0; e + 1 < routes.offsets.size(); ++e) {
            for (std::int64_t p = routes.offsets[e]; p < routes.offsets[e + 1]; ++p) {
                const float* scales = host_scales_.data() + static_cast<std::ptrdiff_t>(e) * n_;
                code_row(x, p, backward ? scales : nullptr);
            }
        }
        return expert_product(routes, x, backward ? codes_ : effective, backward);
    }

    HostMatrix effective;
    ExpertCodes ops;

  private:
    static std::vector<std::uint8_t> bytes(std::int64_t count) {
        return std::vector<std::uint8_t>(static_cast<std::size_t>(count));
    }
    std::int64_t widest() const { return std::max(n_, effective.cols); }

    HostMatrix codes_;
    std::int64_t n_;
    DeviceVector<std::uint8_t> device_codes_;
    DeviceVector<float> scales_;
    DeviceVector<std::uint8_t> transposed_;
    DeviceVector<float> ones_;
    DeviceVector<std::uint8_t> rows_;
    DeviceVector<float> row_scales_;
    std::vector<float> host_scales_;
};

class ExpertCodesTest : public BackendTest {
  protected:
    void SetUp() override {
        if (dtype() == DType::f32 && backend().native_stream() != nullptr) {
            GTEST_SKIP() << "fp8 products on GPUs are in bf16";
        }
    }
    /// Forward the accumulators of tensor cores may keep fewer bits than fp32.
    void expect_near(const DeviceMatrix& got, const HostMatrix& expected, bool backward,
                     const char* what) const {
        const double exact = std::max(tolerance_of(dtype()).relative, 1e-3);
        expect_close(got.download().values, expected.values,
                     {backward ? exact : std::max(exact, 1e-2)}, what);
    }
    /// W's shape.
    TensorView shape_of(const HostMatrix& w) const {
        return matrix(nullptr, dtype(), w.rows, w.cols);
    }

    void check_products(bool with_lora);
    void check_gate_up(bool with_lora);
    void check_down_backward(bool with_lora);
};

void ExpertCodesTest::check_products(bool with_lora) {
    for (const ProductCase& of : code_cases) {
        const MadeRoutes made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
        const CodedExperts coded(backend(), w, of.router.experts, copies);
        for (const bool backward : {false, true}) {
            const HostMatrix x = random(copies, backward ? of.size : of.hidden, 4);
            HostMatrix expected = coded.product(made.routes, x, backward);
            const AddedToProduct lora(backend(), made.routes, of.router, expected.cols, !backward,
                                      2);
            const DeviceMatrix device_x(backend(), x, 8);
            const DeviceMatrix y(backend(), HostMatrix(copies, expected.cols), 16);
            std::vector<ExpertLora> added;
            for (std::size_t i = 0; with_lora && i < 2; ++i) {
                expected = lora.added(made.routes, i, expected);
                added.push_back(lora.op(i, y.view(), made.device.routes));
            }
            const ExpertProduct op{device_x.view(), shape_of(w), y.view(), made.device.routes,
                                   backward,        added,       coded.ops};
            backend().multiply_experts(op);
            expect_near(y, expected, backward, "multiply_experts of codes");
            const HostMatrix first = y.download();
            backend().multiply_experts(op);
            EXPECT_EQ(y.download().values, first.values) << "two runs";
            if (backward) continue;
            const HostMatrix bias =
                reference::random_matrix(of.router.experts, of.size, 11, DType::f32);
            const DeviceVector<float> device_bias = device_floats(backend(), bias);
            ExpertProduct biased = op;
            biased.bias = device_bias.data();
            add_bias_rows(made.routes, bias, expected);
            backend().multiply_experts(biased);
            expect_near(y, expected, backward, "multiply_experts of codes with biases");
        }
    }
}

void ExpertCodesTest::check_gate_up(bool with_lora) {
    for (const ProductCase& of : code_cases) {
        const MadeRoutes made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix h = random(of.router.tokens, of.hidden, 5);
        const HostMatrix w = random(of.router.experts * 2 * of.size, of.hidden, 6);
        const CodedExperts coded(backend(), w, of.router.experts, copies);
        HostMatrix expected = coded.product(made.routes, gathered(made.routes, h), false);
        const AddedToProduct lora(backend(), made.routes, of.router, of.size, true, 2);
        const DeviceMatrix device_h(backend(), h, 8);
        const DeviceMatrix rows(backend(), HostMatrix(copies, of.hidden));
        const DeviceMatrix product(backend(), HostMatrix(copies, of.size), 8);
        const DeviceMatrix gate_up(backend(), HostMatrix(copies, 2 * of.size), 8);
        std::vector<ExpertLora> added;
        for (std::size_t i = 0; with_lora && i < 2; ++i) {
            const std::int64_t first = static_cast<std::int64_t>(i) * of.size;
            expected = with_columns(
                expected, lora.added(made.routes, i, columns_of(expected, first, of.size)), first);
            added.push_back(
                lora.op(i, gate_up.view().col_range(first, of.size), made.device.routes));
        }
        ExpertGateUp op{device_h.view(),  shape_of(w), gate_up.view(),
                        product.view(),   rows.view(), made.device.routes,
                        Activation::silu, added,       coded.ops};
        backend().expert_gate_up(op);
        expect_near(gate_up, expected, false, "gate_up of codes");
        expect_close(product, reference::gated_product(gate_up.download()), "product");
        const HostMatrix bias =
            reference::random_matrix(of.router.experts, 2 * of.size, 11, DType::f32);
        const DeviceVector<float> device_bias = device_floats(backend(), bias);
        op.bias = device_bias.data();
        op.activation = Activation::clamped_swiglu;
        add_bias_rows(made.routes, bias, expected);
        backend().expert_gate_up(op);
        expect_near(gate_up, expected, false, "gate_up of codes with biases");
        expect_close(product, reference::gated_product(gate_up.download(), op.activation),
                     "clamped product");
    }
}

void ExpertCodesTest::check_down_backward(bool with_lora) {
    for (const ProductCase& of : code_cases) {
        const MadeRoutes made(backend(), of);
        const std::int64_t copies = of.router.tokens * of.router.per_token;
        const HostMatrix dy = random(of.router.tokens, of.hidden, 7);
        const HostMatrix w = random(of.router.experts * of.hidden, of.size, 8);
        const HostMatrix gate_up = random(copies, 2 * of.size, 9);
        const CodedExperts coded(backend(), w, of.router.experts, copies);
        HostMatrix inner = coded.product(made.routes, gathered(made.routes, dy), true);
        const AddedToProduct lora(backend(), made.routes, of.router, of.size, false, 1);
        if (with_lora) inner = lora.added(made.routes, 0, inner);
        const HostMatrix product = reference::gated_product(gate_up);
        std::vector<double> d_weights(static_cast<std::size_t>(copies));
        const std::vector<float> weights_of_rows = made.device.weights.download();
        for (std::int64_t i = 0; i < copies; ++i) {
            const std::int64_t place = made.routes.places[static_cast<std::size_t>(i)];
            for (std::int64_t c = 0; c < of.size; ++c) {
                d_weights[static_cast<std::size_t>(i)] += inner(place, c) * product(place, c);
                inner(place, c) *= weights_of_rows[static_cast<std::size_t>(i)];
            }
        }
        const DeviceMatrix device_dy(backend(), dy, 8);
        const DeviceMatrix device_gate_up(backend(), gate_up);
        const DeviceMatrix d_gate_up(backend(), HostMatrix(copies, 2 * of.size), 8);
        const DeviceMatrix rows(backend(), HostMatrix(copies, of.hidden));
        const DeviceMatrix made_product(backend(), HostMatrix(copies, of.size), 8);
        const DeviceMatrix made_inner(backend(), HostMatrix(copies, of.size));
        const DeviceVector<float> found_d(
            backend(), std::vector<float>(static_cast<std::size_t>(copies), 3.0F));
        std::vector<ExpertLora> added;
        if (with_lora) added.push_back(lora.op(0, made_inner.view(), made.device.routes));
        backend().expert_down_backward({device_dy.view(), shape_of(w), device_gate_up.view(),
                                        d_gate_up.view(), found_d.data(), rows.view(),
                                        made_product.view(), made_inner.view(), made.device.routes,
                                        Activation::silu, added, coded.ops});
        expect_near(d_gate_up, reference::gated_gradient(gate_up, inner), true, "d_gate_up");
        expect_close(made_product, product, "product");
        const std::vector<float> found = found_d.download();
        expect_close(std::vector<double>(found.begin(), found.end()), d_weights,
                     {dtype() == DType::f32 ? 1e-3 : 1e-2}, "d_weights");
    }
}

TEST_P(ExpertCodesTest, MultiplyAsLoops) {
    check_products(false);
}
TEST_P(ExpertCodesTest, AddLoraAsLoops) {
    check_products(true);
}
TEST_P(ExpertCodesTest, GateUpAsLoops) {
    check_gate_up(false);
}
TEST_P(ExpertCodesTest, GateUpWithLoraAsLoops) {
    check_gate_up(true);
}
TEST_P(ExpertCodesTest, DownBackwardAsLoops) {
    check_down_backward(false);
}
TEST_P(ExpertCodesTest, DownBackwardWithLoraAsLoops) {
    check_down_backward(true);
}

/// Of whatever stays alone, as GemmFp8Test has it.
TEST_P(ExpertCodesTest, ARowThatIsNotFiniteStaysAlone) {
    const ProductCase of{{40, 4, 2, true}, 64, 32};
    const MadeRoutes made(backend(), of);
    const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
    const CodedExperts coded(backend(), w, of.router.experts, 80);
    HostMatrix x = random(80, of.hidden, 4);
    const DeviceMatrix y(backend(), HostMatrix(80, of.size));
    const auto multiply = [&] {
        const DeviceMatrix device_x(backend(), x);
        backend().multiply_experts(
            {device_x.view(), shape_of(w), y.view(), made.device.routes, false, {}, coded.ops});
        return y.download();
    };
    const HostMatrix finite = multiply();
    x(13, 5) = std::numeric_limits<double>::infinity();
    const HostMatrix found = multiply();
    for (std::int64_t row = 0; row < 80; ++row) {
        for (std::int64_t col = 0; col < of.size; ++col) {
            if (row == 13) {
                EXPECT_TRUE(std::isnan(found(row, col)));
            } else {
                EXPECT_EQ(found(row, col), finite(row, col));
            }
        }
    }
}

TEST_P(ExpertCodesTest, RefuseCodesThatDoNotFit) {
    const ProductCase of{{4, 4, 2, true}, 32, 16};
    const MadeRoutes made(backend(), of);
    const HostMatrix w = random(of.router.experts * of.size, of.hidden, 3);
    const CodedExperts coded(backend(), w, of.router.experts, 8);
    const DeviceMatrix x(backend(), HostMatrix(8, of.hidden));
    const DeviceMatrix y(backend(), HostMatrix(8, of.size));
    ExpertProduct op{x.view(), shape_of(w), y.view(), made.device.routes, false, {}, coded.ops};
    op.codes.rows.cols = 16;
    EXPECT_THROW(backend().multiply_experts(op), std::exception);
    op.codes = coded.ops;
    op.codes.weights.rows -= 16;
    EXPECT_THROW(backend().multiply_experts(op), std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertCodesTest);

}  // namespace
}  // namespace loratrain

#include <limits>

#include "support/backend_case.h"
#include "support/expert_products.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr std::int64_t rank = 8;

struct LanesCase {
    ProductCase of;
    std::int64_t lanes;
};
constexpr LanesCase lanes_cases[] = {{{{37, 6, 2, true}, 64, 32}, 2},
                                     {{{300, 6, 2, true}, 136, 104}, 3},
                                     {{{70, 40, 8, false}, 24, 12}, 5},
                                     {{{700, 12, 3, true}, 200, 264}, 4},
                                     {{{5, 4, 1, true}, 16, 8}, 4}};

/// Experts [first, first + count) of a case.
struct Own {
    std::int64_t first;
    std::int64_t count;
};

/// Numbers of a layer of experts with biases and LoRA on gate and up.
struct Numbers {
    HostMatrix logits, h, dy, gate_up, down, gate_up_bias, down_bias, a, b;
};

/// What a lane makes of them, forward and backward.
struct Made {
    std::vector<std::int32_t> places, rows, offsets, chosen;
    HostMatrix inputs, outputs, d_gate_up, dh, d_logits, grad_a, grad_b;
    HostMatrix d_weights;
};

HostMatrix rows_of(const HostMatrix& whole, std::int64_t first, std::int64_t count) {
    HostMatrix part(count, whole.cols);
    for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t col = 0; col < whole.cols; ++col)
            part(row, col) = whole(first + row, col);
    }
    return part;
}

HostMatrix matrix_of(const std::vector<float>& values, std::int64_t cols) {
    HostMatrix result(std::ssize(values) / cols, cols);
    result.values.assign(values.begin(), values.end());
    return result;
}

class ExpertLanesTest : public BackendTest {
  protected:
    Numbers numbers_of(const ProductCase& of) const {
        const std::int64_t e = of.router.experts;
        const auto floats = [](std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
            return reference::random_matrix(rows, cols, seed, DType::f32);
        };
        return {logits_of(of.router),
                random(of.router.tokens, of.hidden, 1),
                random(of.router.tokens, of.hidden, 2),
                random(e * 2 * of.size, of.hidden, 3),
                random(e * of.hidden, of.size, 4),
                floats(e, 2 * of.size, 5),
                floats(e, of.hidden, 6),
                random(e * rank, of.hidden, 7),
                random(e * 2 * of.size, rank, 8)};
    }

    /// Where no operator may read, there is NaN.
    DeviceMatrix empty(std::int64_t rows, std::int64_t cols) {
        return {backend(), HostMatrix(rows, cols, std::numeric_limits<double>::quiet_NaN())};
    }
    DeviceMatrix device(const HostMatrix& whole, const Own& own, std::int64_t rows) {
        return {backend(), rows_of(whole, own.first * rows, own.count * rows)};
    }
    DeviceVector<float> floats(const HostMatrix& whole, const Own& own, std::int64_t rows) {
        return device_floats(backend(), rows_of(whole, own.first * rows, own.count * rows));
    }

    Made make(const ProductCase& of, const Numbers& numbers, const Own& own);
    void expect_sum(const std::vector<Made>& lanes, HostMatrix Made::*what, const HostMatrix& whole,
                    const char* name) const;
    static void expect_part(const HostMatrix& part, const HostMatrix& whole, std::int64_t first,
                            std::int64_t count, const char* name);
};

Made ExpertLanesTest::make(const ProductCase& of, const Numbers& numbers, const Own& own) {
    const RouterCase& router = of.router;
    const std::int64_t copies = router.tokens * router.per_token;
    DeviceRoutes device_routes(backend(), router);
    ExpertRoutes routes = device_routes.routes;
    routes.experts = own.count;
    routes.before = own.first;
    routes.others = router.experts - own.count;
    const DeviceMatrix logits(backend(), numbers.logits, 0, DType::f32);
    backend().route({logits.view(), routes, router.normalised});

    const DeviceMatrix h(backend(), numbers.h), dy(backend(), numbers.dy);
    const DeviceMatrix gate_up_w = device(numbers.gate_up, own, 2 * of.size);
    const DeviceMatrix down_w = device(numbers.down, own, of.hidden);
    const DeviceVector<float> gate_up_bias = floats(numbers.gate_up_bias, own, 1);
    const DeviceVector<float> down_bias = floats(numbers.down_bias, own, 1);
    const DeviceVector<float> a = floats(numbers.a, own, rank);
    const DeviceVector<float> b = floats(numbers.b, own, 2 * of.size);
    const DeviceVector<float> grad_a = floats(HostMatrix(numbers.a.rows, of.hidden), own, rank);
    const DeviceVector<float> grad_b = floats(HostMatrix(numbers.b.rows, rank), own, 2 * of.size);
    LoraSlot slot;
    slot.a = a.data();
    slot.b = b.data();
    slot.grad_a = grad_a.data();
    slot.grad_b = grad_b.data();
    slot.rank = rank;
    slot.scale = 0.5F;
    const std::vector<LoraSegment> segments{{0, 0, router.tokens}};
    const DeviceMatrix s = empty(copies, rank), ds = empty(copies, rank);
    const auto lora = [&](const TensorView& wide, const DeviceMatrix& narrow, bool of_b,
                          bool gathered) {
        return ExpertLora{wide, narrow.view(), {&slot, 1}, {segments, {}}, routes, of_b, gathered};
    };

    const DeviceMatrix rows = empty(copies, of.hidden), gate_up = empty(copies, 2 * of.size);
    const DeviceMatrix product = empty(copies, of.size), outputs(backend(), numbers.h);
    const ExpertLora shrink[] = {lora(h.view(), s, false, true)};
    backend().narrow_experts(shrink);
    const ExpertLora expand[] = {lora(gate_up.view(), s, true, false)};
    backend().expert_gate_up({h.view(),
                              gate_up_w.view(),
                              gate_up.view(),
                              product.view(),
                              rows.view(),
                              routes,
                              Activation::silu,
                              expand,
                              {},
                              gate_up_bias.data()});
    backend().multiply_experts(
        {product.view(), down_w.view(), rows.view(), routes, false, {}, {}, down_bias.data()});
    const DeviceMatrix none(backend(), HostMatrix(router.tokens, of.hidden));
    backend().combine_experts({outputs.view(), rows.view(), none.view(), routes, true});

    const DeviceMatrix inner = empty(copies, of.size), d_gate_up = empty(copies, 2 * of.size);
    const DeviceVector<float> d_weights(
        backend(), std::vector<float>(static_cast<std::size_t>(copies),
                                      std::numeric_limits<float>::quiet_NaN()));
    backend().expert_down_backward({dy.view(),
                                    down_w.view(),
                                    gate_up.view(),
                                    d_gate_up.view(),
                                    d_weights.data(),
                                    rows.view(),
                                    product.view(),
                                    inner.view(),
                                    routes,
                                    Activation::silu,
                                    {},
                                    {},
                                    down_bias.data()});
    const ExpertLora shrink_back[] = {lora(d_gate_up.view(), ds, true, false)};
    backend().narrow_experts(shrink_back);
    const ExpertLora expand_back[] = {lora(rows.view(), ds, false, false)};
    backend().multiply_experts(
        {d_gate_up.view(), gate_up_w.view(), rows.view(), routes, true, expand_back});
    const ExpertLora of_a[] = {lora(h.view(), ds, false, true)};
    const ExpertLora of_b[] = {lora(d_gate_up.view(), s, true, false)};
    backend().add_expert_grads(of_b);
    backend().add_expert_grads(of_a);
    const DeviceMatrix dh(backend(), numbers.h), d_logits = empty(router.tokens, router.experts);
    backend().combine_experts({dh.view(), rows.view(), none.view(), routes, false});
    backend().route_backward({d_logits.view(), d_weights.data(), routes, router.normalised});
    backend().weigh_rows({product.view(), routes});
    return {device_routes.places.download(),
            device_routes.rows.download(),
            device_routes.offsets.download(),
            device_routes.chosen.download(),
            product.download(),
            outputs.download(),
            d_gate_up.download(),
            dh.download(),
            d_logits.download(),
            matrix_of(grad_a.download(), of.hidden),
            matrix_of(grad_b.download(), rank),
            matrix_of(d_weights.download(), router.per_token)};
}

void ExpertLanesTest::expect_sum(const std::vector<Made>& lanes, HostMatrix Made::*what,
                                 const HostMatrix& whole, const char* name) const {
    HostMatrix sum(whole.rows, whole.cols);
    for (const Made& lane : lanes) {
        for (std::size_t i = 0; i < sum.values.size(); ++i) {
            sum.values[i] += (lane.*what).values[i];
        }
    }
    expect_close(sum.values, whole.values, tolerance_of(dtype()), name);
}

void ExpertLanesTest::expect_part(const HostMatrix& part, const HostMatrix& whole,
                                  std::int64_t first, std::int64_t count, const char* name) {
    EXPECT_EQ(rows_of(part, 0, count).values, rows_of(whole, first, count).values) << name;
}

TEST_P(ExpertLanesTest, LanesOfWholeExpertsAddUp) {
    for (const LanesCase& lanes_case : lanes_cases) {
        const ProductCase& of = lanes_case.of;
        SCOPED_TRACE(cat(of.router.experts, " experts on ", lanes_case.lanes, " lanes"));
        const Numbers numbers = numbers_of(of);
        const Made whole = make(of, numbers, {0, of.router.experts});
        std::vector<Made> lanes;
        const std::int64_t held = of.router.experts / lanes_case.lanes;
        for (std::int64_t lane = 0; lane < lanes_case.lanes; ++lane) {
            const Own own{lane * held, held};
            lanes.push_back(make(of, numbers, own));
            const Made& made = lanes.back();
            EXPECT_EQ(made.chosen, whole.chosen);
            const std::int32_t first = whole.offsets[static_cast<std::size_t>(own.first)];
            const std::int32_t end = whole.offsets[static_cast<std::size_t>(own.first + held)];
            for (std::size_t e = 0; e <= static_cast<std::size_t>(held); ++e) {
                EXPECT_EQ(made.offsets[e],
                          whole.offsets[e + static_cast<std::size_t>(own.first)] - first);
            }
            for (std::size_t i = 0; i < whole.places.size(); ++i) {
                const std::int32_t place = whole.places[i];
                EXPECT_EQ(made.places[i], place >= first && place < end ? place - first : -1);
                const auto p = static_cast<std::size_t>(first) + i;
                EXPECT_EQ(made.rows[i], std::cmp_less(p, end) ? whole.rows[p] : -1);
            }
            expect_part(made.inputs, whole.inputs, first, end - first, "weighted inputs of down");
            expect_part(made.d_gate_up, whole.d_gate_up, first, end - first, "d_gate_up");
            const auto of_experts = [&](const HostMatrix& all, std::int64_t rows) {
                return rows_of(all, own.first * rows, held * rows).values;
            };
            const Tolerance tolerance = tolerance_of(dtype());
            expect_close(made.grad_a.values, of_experts(whole.grad_a, rank), tolerance, "dA");
            expect_close(made.grad_b.values, of_experts(whole.grad_b, 2 * of.size), tolerance,
                         "dB");
        }
        expect_sum(lanes, &Made::outputs, whole.outputs, "outputs");
        expect_sum(lanes, &Made::dh, whole.dh, "dh");
        expect_sum(lanes, &Made::d_weights, whole.d_weights, "d_weights");
        expect_sum(lanes, &Made::d_logits, whole.d_logits, "d_logits");
    }
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(ExpertLanesTest);

}  // namespace
}  // namespace loratrain

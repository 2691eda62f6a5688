#include "reference/experts.h"

#include "support/backend_case.h"
#include "support/expert_routes.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

void expect_near(const std::vector<float>& found, const HostMatrix& expected, double limit,
                 const char* what) {
    ASSERT_EQ(found.size(), expected.values.size()) << what;
    double largest = 0.0;
    for (const double value : expected.values) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected.values[i], limit * largest) << what << " " << i;
    }
}

class ExpertsTest : public BackendTest {};

TEST_P(ExpertsTest, RoutesAsLoops) {
    for (const RouterCase& of : router_cases) {
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 8, DType::f32);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, of.normalised});
        const reference::Routes expected(logits, of.per_token, of.normalised);
        EXPECT_EQ(found.chosen.download(), expected.chosen) << of.experts;
        EXPECT_EQ(found.places.download(), expected.places) << of.experts;
        EXPECT_EQ(found.rows.download(), expected.rows) << of.experts;
        EXPECT_EQ(found.offsets.download(), expected.offsets) << of.experts;
        expect_near(found.probabilities.download(), expected.probabilities, 3e-6, "probabilities");
        expect_near(found.weights.download(), expected.weights, 3e-6, "weights");
    }
}

/// A router with more than softmax.
struct RuledCase {
    RouterCase of;
    RouterScores scores;
    bool biased;
    std::int64_t groups;
    std::int64_t used_groups;
    double scale;

    reference::RouterRule rule() const {
        reference::RouterRule rule{scores == RouterScores::sigmoid, {}, groups, used_groups, scale};
        const auto values = reference::random_matrix(1, of.experts, 17, DType::f32).values;
        if (biased) rule.bias.assign(values.begin(), values.end());
        return rule;
    }
};
constexpr RuledCase ruled_cases[] = {{{37, 6, 2, true}, RouterScores::sigmoid, false, 1, 1, 1.0},
                                     {{50, 128, 8, true}, RouterScores::sigmoid, true, 1, 1, 2.5},
                                     {{61, 64, 6, true}, RouterScores::sigmoid, true, 8, 3, 1.5},
                                     {{40, 16, 4, false}, RouterScores::sigmoid, true, 4, 2, 1.0},
                                     {{45, 24, 3, false}, RouterScores::softmax, false, 12, 5, 0.5},
                                     {{33, 12, 3, true}, RouterScores::softmax, true, 3, 2, 4.0},
                                     {{9, 1024, 32, true}, RouterScores::sigmoid, true, 32, 4, 1.0},
                                     {{70, 1, 1, false}, RouterScores::sigmoid, false, 1, 1, 1.0}};

TEST_P(ExpertsTest, RoutesByRules) {
    for (const RuledCase& ruled : ruled_cases) {
        const RouterCase& of = ruled.of;
        const HostMatrix logits = logits_of(of);
        const reference::Routes expected(logits, of.per_token, of.normalised, ruled.rule());
        const DeviceMatrix device(backend(), logits, 8, DType::f32);
        DeviceRoutes found(backend(), of);
        std::vector<float> values(expected.rule.bias.begin(), expected.rule.bias.end());
        values.resize(static_cast<std::size_t>(of.experts));
        const DeviceVector<float> bias(backend(), values);
        const auto scale = static_cast<float>(ruled.scale);
        backend().route({device.view(), found.routes, of.normalised, ruled.scores,
                         ruled.biased ? bias.data() : nullptr, ruled.groups, ruled.used_groups,
                         scale});
        EXPECT_EQ(found.chosen.download(), expected.chosen) << of.experts;
        EXPECT_EQ(found.places.download(), expected.places) << of.experts;
        EXPECT_EQ(found.rows.download(), expected.rows) << of.experts;
        EXPECT_EQ(found.offsets.download(), expected.offsets) << of.experts;
        expect_near(found.probabilities.download(), expected.probabilities, 3e-6, "scores");
        expect_near(found.weights.download(), expected.weights, 3e-6, "weights");

        const HostMatrix d_weights =
            reference::random_matrix(of.tokens, of.per_token, 10, DType::f32);
        const DeviceVector<float> device_d(
            backend(), std::vector<float>(d_weights.values.begin(), d_weights.values.end()));
        const DeviceMatrix d_logits(backend(), HostMatrix(of.tokens, of.experts, 2.0), 8);
        backend().route_backward(
            {d_logits.view(), device_d.data(), found.routes, of.normalised, ruled.scores, scale});
        expect_close(d_logits, expected.gradient(d_weights), "d_logits");
    }
}

TEST_P(ExpertsTest, NormalisedWeightsAreTheSoftmaxOfTheChosenLogits) {
    for (const RouterCase& of : router_cases) {
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 8, DType::f32);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, true});
        const std::vector<std::int32_t> chosen = found.chosen.download();
        HostMatrix expected(of.tokens, of.per_token);
        for (std::int64_t t = 0; t < of.tokens; ++t) {
            double sum = 0.0;
            for (std::int64_t j = 0; j < of.per_token; ++j) {
                const std::int32_t e = chosen[static_cast<std::size_t>(t * of.per_token + j)];
                sum += expected(t, j) = std::exp(logits(t, e));
            }
            for (std::int64_t j = 0; j < of.per_token; ++j) expected(t, j) /= sum;
        }
        expect_near(found.weights.download(), expected, 3e-6, "weights");
    }
}

TEST_P(ExpertsTest, RoutesNoRows) {
    const RouterCase of{0, 4, 2, true};
    const DeviceMatrix logits(backend(), HostMatrix(0, 4), 0, DType::f32);
    DeviceRoutes found(backend(), of);
    backend().route({logits.view(), found.routes, true});
    EXPECT_EQ(found.offsets.download(), std::vector<std::int32_t>(5, 0));
}

TEST_P(ExpertsTest, CombinesAsLoops) {
    for (const RouterCase& of : router_cases) {
        for (const std::int64_t cols : {7, 64}) {
            const HostMatrix logits = logits_of(of);
            const DeviceMatrix device(backend(), logits, 0, DType::f32);
            DeviceRoutes found(backend(), of);
            backend().route({device.view(), found.routes, of.normalised});
            const reference::Routes routes(logits, of.per_token, of.normalised);
            const HostMatrix x = random(of.tokens * of.per_token, cols, 6);
            const HostMatrix added = random(of.tokens, cols, 7);
            for (const bool weighted : {true, false}) {
                HostMatrix expected = added;
                for (std::int64_t i = 0; i < x.rows; ++i) {
                    const std::int64_t t = i / of.per_token;
                    const double w = weighted ? routes.weights(t, i % of.per_token) : 1.0;
                    const std::int64_t place = routes.places[static_cast<std::size_t>(i)];
                    for (std::int64_t c = 0; c < cols; ++c) expected(t, c) += w * x(place, c);
                }
                const DeviceMatrix device_x(backend(), x, 8);
                const DeviceMatrix y(backend(), HostMatrix(of.tokens, cols), 16);
                const DeviceMatrix device_added(backend(), added, 8);
                backend().combine_experts(
                    {y.view(), device_x.view(), device_added.view(), found.routes, weighted});
                expect_close(y, expected, "combine_experts");
                backend().combine_experts({device_added.view(), device_x.view(),
                                           device_added.view(), found.routes, weighted});
                expect_close(device_added, expected, "combine_experts in place");
            }
        }
    }
}

TEST_P(ExpertsTest, WeighsAsLoops) {
    for (const RouterCase& of : router_cases) {
        const std::int64_t cols = of.experts == 6 ? 24 : 129;
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 0, DType::f32);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, of.normalised});
        const reference::Routes routes(logits, of.per_token, of.normalised);
        const HostMatrix inner = random(of.tokens * of.per_token, cols, 8);
        const HostMatrix product = random(of.tokens * of.per_token, cols, 9);
        HostMatrix weighed = inner;
        HostMatrix d_weights(of.tokens, of.per_token);
        for (std::int64_t i = 0; i < inner.rows; ++i) {
            const std::int64_t place = routes.places[static_cast<std::size_t>(i)];
            for (std::int64_t c = 0; c < cols; ++c) {
                d_weights.values[static_cast<std::size_t>(i)] +=
                    inner(place, c) * product(place, c);
                weighed(place, c) *= routes.weights.values[static_cast<std::size_t>(i)];
            }
        }
        const DeviceMatrix device_inner(backend(), inner, 8);
        const DeviceMatrix device_product(backend(), product, 16);
        const DeviceVector<float> found_d(backend(),
                                          std::vector<float>(d_weights.values.size(), 3.0F));
        backend().weigh_experts(
            {device_inner.view(), device_product.view(), found_d.data(), found.routes});
        expect_near(found_d.download(), d_weights, 3e-6, "d_weights");
        expect_close(device_inner, weighed, "inner");
        expect_close(device_product, product, "product is only read");
    }
}

TEST_P(ExpertsTest, WeighsRowsAsLoops) {
    for (const RouterCase& of : router_cases) {
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 0, DType::f32);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, of.normalised});
        const reference::Routes routes(logits, of.per_token, of.normalised);
        HostMatrix weighed = random(of.tokens * of.per_token, 5, 8);
        const DeviceMatrix x(backend(), weighed, 3);
        for (std::int64_t i = 0; i < weighed.rows; ++i) {
            for (std::int64_t c = 0; c < weighed.cols; ++c) {
                weighed(routes.places[static_cast<std::size_t>(i)], c) *=
                    routes.weights.values[static_cast<std::size_t>(i)];
            }
        }
        backend().weigh_rows({x.view(), found.routes});
        expect_close(x, weighed, "weigh_rows");
    }
}

TEST_P(ExpertsTest, RouteBackwardAgreesWithLoops) {
    for (const RouterCase& of : router_cases) {
        if (of.tokens > 1000) continue;
        const HostMatrix logits = logits_of(of);
        const DeviceMatrix device(backend(), logits, 0, DType::f32);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, of.normalised});
        const reference::Routes routes(logits, of.per_token, of.normalised);
        const HostMatrix d_weights =
            reference::random_matrix(of.tokens, of.per_token, 10, DType::f32);
        const std::vector<float> values(d_weights.values.begin(), d_weights.values.end());
        const DeviceVector<float> device_d(backend(), values);
        const DeviceMatrix d_logits(backend(), HostMatrix(of.tokens, of.experts, 2.0), 8);
        backend().route_backward({d_logits.view(), device_d.data(), found.routes, of.normalised});
        expect_close(d_logits, routes.gradient(d_weights), "d_logits");
    }
}

TEST_P(ExpertsTest, RefusesShapesThatDoNotFit) {
    const RouterCase of{4, 4, 2, true};
    DeviceRoutes found(backend(), of);
    const DeviceMatrix logits(backend(), HostMatrix(4, 5), 0, DType::f32);
    EXPECT_THROW(backend().route({logits.view(), found.routes, true}), std::exception);
    const DeviceMatrix fitting(backend(), HostMatrix(4, 4), 0, DType::f32);
    const auto grouped = [&](std::int64_t groups, std::int64_t used) {
        backend().route(
            {fitting.view(), found.routes, true, RouterScores::sigmoid, nullptr, groups, used});
    };
    EXPECT_NO_THROW(grouped(2, 1));
    EXPECT_THROW(grouped(3, 1), std::exception);
    EXPECT_THROW(grouped(4, 2), std::exception);  // of one expert each
    EXPECT_THROW(grouped(2, 3), std::exception);
    const DeviceMatrix x(backend(), HostMatrix(7, 3));
    const DeviceMatrix y(backend(), HostMatrix(4, 3));
    EXPECT_THROW(backend().combine_experts({y.view(), x.view(), y.view(), found.routes, true}),
                 std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertsTest);

}  // namespace
}  // namespace loratrain

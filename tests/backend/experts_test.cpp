#include "reference/experts.h"

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

struct Case {
    std::int64_t tokens;
    std::int64_t experts;
    std::int64_t per_token;
    bool normalised;
};
constexpr Case cases[] = {{1, 4, 2, true},      {37, 6, 2, true},      {50, 128, 8, true},
                          {2100, 33, 3, false}, {70, 1024, 32, false}, {5, 3, 3, true}};

/// Logits some of which are equal, of experts that few or no rows choose.
HostMatrix logits_of(const Case& of, DType dtype) {
    HostMatrix logits = reference::random_matrix(of.tokens, of.experts, 5, dtype);
    for (std::int64_t t = 0; t < of.tokens; ++t) {
        for (std::int64_t e = 0; e < of.experts; ++e) {
            double& at = logits(t, e);
            at = reference::rounded_to(dtype, 4.0 * at - (e % 5 == 3 ? 7.0 : 0.0));
        }
        if (t % 7 == 2) logits(t, of.experts - 1) = logits(t, 0);
    }
    return logits;
}

/// ExpertRoutes in a backend's memory.
struct DeviceRoutes {
    DeviceRoutes(Backend& backend, const Case& of)
        : probabilities(backend, zeros<float>(of.tokens * of.experts)),
          weights(backend, zeros<float>(of.tokens * of.per_token)),
          chosen(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          places(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          rows(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          offsets(backend, zeros<std::int32_t>(of.experts + 1)),
          host_offsets(static_cast<std::size_t>(of.experts) + 1),
          routes{of.tokens,      of.experts,         of.per_token,  probabilities.data(),
                 weights.data(), chosen.data(),      places.data(), rows.data(),
                 offsets.data(), host_offsets.data()} {}
    DeviceRoutes(const DeviceRoutes&) = delete;
    DeviceRoutes& operator=(const DeviceRoutes&) = delete;

    template <class T>
    static std::vector<T> zeros(std::int64_t count) {
        return std::vector<T>(static_cast<std::size_t>(count));
    }

    DeviceVector<float> probabilities;
    DeviceVector<float> weights;
    DeviceVector<std::int32_t> chosen;
    DeviceVector<std::int32_t> places;
    DeviceVector<std::int32_t> rows;
    DeviceVector<std::int32_t> offsets;
    std::vector<std::int32_t> host_offsets;
    ExpertRoutes routes;
};

void expect_near(const std::vector<float>& found, const HostMatrix& expected, double limit,
                 const char* what) {
    ASSERT_EQ(found.size(), expected.values.size()) << what;
    double largest = 0.0;
    for (const double value : expected.values) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected.values[i], limit * largest) << what << " " << i;
    }
}

class ExpertsTest : public BackendTest {
  protected:
    /// Of what is rounded to compute type.
    double limit() const { return dtype() == DType::f32 ? 3e-6 : 5e-3; }
};

TEST_P(ExpertsTest, RoutesAsLoops) {
    for (const Case& of : cases) {
        const HostMatrix logits = logits_of(of, dtype());
        const DeviceMatrix device(backend(), logits, 8);
        DeviceRoutes found(backend(), of);
        backend().route({device.view(), found.routes, of.normalised});
        const reference::Routes expected(logits, of.per_token, of.normalised);
        EXPECT_EQ(found.chosen.download(), expected.chosen) << of.experts;
        EXPECT_EQ(found.places.download(), expected.places) << of.experts;
        EXPECT_EQ(found.rows.download(), expected.rows) << of.experts;
        EXPECT_EQ(found.offsets.download(), expected.offsets) << of.experts;
        EXPECT_EQ(found.host_offsets, expected.offsets) << of.experts;
        expect_near(found.probabilities.download(), expected.probabilities, 3e-6, "probabilities");
        expect_near(found.weights.download(), expected.weights, limit(), "weights");
    }
}

TEST_P(ExpertsTest, RoutesNoRows) {
    const Case of{0, 4, 2, true};
    const DeviceMatrix logits(backend(), HostMatrix(0, 4));
    DeviceRoutes found(backend(), of);
    backend().route({logits.view(), found.routes, true});
    EXPECT_EQ(found.host_offsets, std::vector<std::int32_t>(5, 0));
}

TEST_P(ExpertsTest, CombinesAsLoops) {
    for (const Case& of : cases) {
        for (const std::int64_t cols : {7, 64}) {
            const HostMatrix logits = logits_of(of, dtype());
            const DeviceMatrix device(backend(), logits);
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
    for (const Case& of : cases) {
        const std::int64_t cols = of.experts == 6 ? 24 : 129;
        const HostMatrix logits = logits_of(of, dtype());
        const DeviceMatrix device(backend(), logits);
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

TEST_P(ExpertsTest, RouteBackwardAgreesWithLoops) {
    for (const Case& of : cases) {
        if (of.tokens > 1000) continue;
        const HostMatrix logits = logits_of(of, dtype());
        const DeviceMatrix device(backend(), logits);
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
    const Case of{4, 4, 2, true};
    DeviceRoutes found(backend(), of);
    const DeviceMatrix logits(backend(), HostMatrix(4, 5));
    EXPECT_THROW(backend().route({logits.view(), found.routes, true}), std::exception);
    const DeviceMatrix x(backend(), HostMatrix(7, 3));
    const DeviceMatrix y(backend(), HostMatrix(4, 3));
    EXPECT_THROW(backend().combine_experts({y.view(), x.view(), y.view(), found.routes, true}),
                 std::exception);
}

LORATRAIN_FOR_EACH_BACKEND(ExpertsTest);

}  // namespace
}  // namespace loratrain

#include <limits>

#include "reference/adamw.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class OptimizerTest : public BackendTest {
  protected:
    /// The buffers of one adapter.
    struct Adapter {
        Adapter(Backend& backend, const HostMatrix& start)
            : parameters(device_floats(backend, start)),
              gradients(backend, std::vector<float>(start.values.size())),
              first_moments(backend, std::vector<float>(start.values.size())),
              second_moments(backend, std::vector<float>(start.values.size())),
              grad_sumsq(backend, {0.0}),
              applied_steps(backend, {0}),
              skipped_steps(backend, {0}) {}

        DeviceVector<float> parameters, gradients, first_moments, second_moments;
        DeviceVector<double> grad_sumsq;
        DeviceVector<std::int64_t> applied_steps, skipped_steps;
    };

    AdamW op_of(const Adapter& adapter, std::int64_t count) const {
        AdamW op;
        op.parameters = adapter.parameters.data();
        op.gradients = adapter.gradients.data();
        op.first_moments = adapter.first_moments.data();
        op.second_moments = adapter.second_moments.data();
        op.count = count;
        op.grad_sumsq = adapter.grad_sumsq.data();
        op.applied_steps = adapter.applied_steps.data();
        op.skipped_steps = adapter.skipped_steps.data();
        return op;
    }

    void set_gradients(const Adapter& adapter, const std::vector<float>& gradients) {
        backend().upload(adapter.gradients.data(), gradients.data(),
                         gradients.size() * sizeof(float));
        backend().sum_squares({adapter.gradients.data(),
                               static_cast<std::int64_t>(gradients.size()),
                               adapter.grad_sumsq.data()});
    }
};

TEST_P(OptimizerTest, SumSquares) {
    for (const std::int64_t count : {0, 1, 63, 64, 65, 100000}) {
        const HostMatrix values = reference::random_matrix(1, count, 1);
        const DeviceVector<float> device = device_floats(backend(), values);
        const DeviceVector<double> result(backend(), {-1.0});
        backend().sum_squares({device.data(), count, result.data()});
        double expected = 0.0;
        for (const double value : values.values) expected += value * value;
        EXPECT_NEAR(result.download()[0], expected, 1e-12 * expected);
    }
}

TEST_P(OptimizerTest, AdamWFollowsTorchForSeveralSteps) {
    for (const double max_grad_norm : {0.0, 1.0, 1e9}) {
        const std::int64_t count = 40001;
        const HostMatrix start = reference::random_matrix(1, count, 1);
        const Adapter adapter(backend(), start);
        AdamW op = op_of(adapter, count);
        op.weight_decay = 0.1;
        op.max_grad_norm = max_grad_norm;
        reference::AdamWState expected{start.values, std::vector<double>(count),
                                       std::vector<double>(count), 0};
        for (int step = 0; step < 4; ++step) {
            op.learning_rate = 1e-3 * step;
            const HostMatrix g = reference::random_matrix(1, count, 10 + step);
            set_gradients(adapter, {g.values.begin(), g.values.end()});
            const double sumsq = adapter.grad_sumsq.download()[0];
            backend().adamw(op);
            reference::adamw(op, g.values, sumsq, expected);
        }
        HostMatrix parameters(1, count);
        parameters.values = expected.parameters;
        expect_close(adapter.parameters, parameters, DType::f32, "parameters");
        parameters.values = expected.first_moments;
        expect_close(adapter.first_moments, parameters, DType::f32, "first moments");
        parameters.values = expected.second_moments;
        expect_close(adapter.second_moments, parameters, DType::f32, "second moments");
        EXPECT_EQ(adapter.gradients.download(), std::vector<float>(count, 0.0F));
        EXPECT_EQ(adapter.applied_steps.download()[0], 4);
        EXPECT_EQ(adapter.skipped_steps.download()[0], 0);
    }
}

TEST_P(OptimizerTest, AStepMayLeaveTheGradients) {
    constexpr std::int64_t count = 1001;
    const HostMatrix start = reference::random_matrix(1, count, 1);
    const Adapter zeroed(backend(), start);
    const Adapter left(backend(), start);
    for (const float bad : {0.0F, std::numeric_limits<float>::infinity()}) {
        const HostMatrix g = reference::random_matrix(1, count, 10);
        std::vector<float> gradients(g.values.begin(), g.values.end());
        gradients[7] += bad;
        for (const Adapter* adapter : {&zeroed, &left}) {
            set_gradients(*adapter, gradients);
            AdamW op = op_of(*adapter, count);
            op.learning_rate = 1e-2;
            op.zeroes = adapter == &zeroed;
            backend().adamw(op);
        }
        EXPECT_EQ(left.parameters.download(), zeroed.parameters.download());
        EXPECT_EQ(left.gradients.download(), gradients);
        EXPECT_EQ(zeroed.gradients.download(), std::vector<float>(count, 0.0F));
    }
}

TEST_P(OptimizerTest, AStepMayTakeSeveralOps) {
    constexpr std::int64_t count = 1000;
    constexpr std::int64_t cut = 300;
    const HostMatrix start = reference::random_matrix(1, count, 1);
    const Adapter whole(backend(), start);
    const Adapter parts(backend(), start);
    AdamW op = op_of(whole, count);
    AdamW head = op_of(parts, cut);
    AdamW tail = op_of(parts, count - cut);
    tail.parameters += cut;
    tail.gradients += cut;
    tail.first_moments += cut;
    tail.second_moments += cut;
    tail.counts = false;
    for (const float bad : {0.0F, 0.0F, std::numeric_limits<float>::infinity(), 0.0F}) {
        const HostMatrix g = reference::random_matrix(1, count, 10);
        std::vector<float> gradients(g.values.begin(), g.values.end());
        gradients[0] += bad;
        set_gradients(whole, gradients);
        set_gradients(parts, gradients);
        for (AdamW* each : {&op, &head, &tail}) {
            each->learning_rate = 1e-2;
            each->weight_decay = 0.1;
            backend().adamw(*each);
        }
    }
    EXPECT_EQ(parts.parameters.download(), whole.parameters.download());
    EXPECT_EQ(parts.first_moments.download(), whole.first_moments.download());
    EXPECT_EQ(parts.second_moments.download(), whole.second_moments.download());
    EXPECT_EQ(parts.gradients.download(), whole.gradients.download());
    EXPECT_EQ(parts.applied_steps.download()[0], 3);
    EXPECT_EQ(parts.skipped_steps.download()[0], 1);
}

TEST_P(OptimizerTest, NonFiniteGradientsAreSkipped) {
    const HostMatrix start = reference::random_matrix(1, 100, 1);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const Adapter adapter(backend(), start);
        const auto before = adapter.parameters.download();
        AdamW op = op_of(adapter, 100);
        op.learning_rate = 1e-2;
        std::vector<float> gradients(100, 1.0F);
        gradients[50] = bad;
        set_gradients(adapter, gradients);
        backend().adamw(op);
        EXPECT_EQ(adapter.parameters.download(), before);
        EXPECT_EQ(adapter.first_moments.download(), std::vector<float>(100, 0.0F));
        EXPECT_EQ(adapter.second_moments.download(), std::vector<float>(100, 0.0F));
        EXPECT_EQ(adapter.gradients.download(), std::vector<float>(100, 0.0F));
        EXPECT_EQ(adapter.applied_steps.download()[0], 0);
        EXPECT_EQ(adapter.skipped_steps.download()[0], 1);
    }
}

LORATRAIN_FOR_EACH_BACKEND(OptimizerTest);

}  // namespace
}  // namespace loratrain

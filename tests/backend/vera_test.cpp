#include "reference/vera.h"

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

std::vector<float> floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

std::vector<double> doubles(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

class VeraTest : public BackendTest {
  protected:
    struct Shape {
        std::int64_t out;
        std::int32_t rank;
    };
    static constexpr Shape shapes[] = {{1, 1}, {35, 3}, {64, 32}, {33, 40}, {700, 130}, {9, 257}};
};

TEST_P(VeraTest, ProductAgreesWithLoops) {
    for (const auto& [out, rank] : shapes) {
        const HostMatrix b = reference::random_matrix(out, rank, 1);
        const std::vector<double> d = reference::random_matrix(1, rank, 2).values;
        const std::vector<double> scale = reference::random_matrix(1, out, 3).values;
        const DeviceVector<float> device_b = device_floats(backend(), b);
        const DeviceVector<float> device_d(backend(), floats(d));
        const DeviceVector<float> device_scale(backend(), floats(scale));
        const DeviceVector<float> product(
            backend(), std::vector<float>(static_cast<std::size_t>(out * rank), 9.0F));
        backend().vera_product(
            {device_b.data(), device_d.data(), device_scale.data(), product.data(), out, rank});
        expect_close(doubles(product.download()), reference::vera_product(b, d, scale).values,
                     {1e-6}, "product");
    }
}

TEST_P(VeraTest, GradientsAreAddedAndTaken) {
    for (const auto& [out, rank] : shapes) {
        const HostMatrix b = reference::random_matrix(out, rank, 1);
        const HostMatrix gradient = reference::random_matrix(out, rank, 4);
        const std::vector<double> d = reference::random_matrix(1, rank, 2).values;
        const std::vector<double> scale = reference::random_matrix(1, out, 3).values;
        const DeviceVector<float> device_b = device_floats(backend(), b);
        const DeviceVector<float> device_gradient = device_floats(backend(), gradient);
        const DeviceVector<float> device_d(backend(), floats(d));
        const DeviceVector<float> device_scale(backend(), floats(scale));
        const DeviceVector<float> grad_d(backend(), std::vector<float>(d.size(), 0.5F));
        const DeviceVector<float> grad_b(backend(), std::vector<float>(scale.size(), -0.25F));
        VeraGradients op;
        op.of = {device_b.data(), device_d.data(), device_scale.data(), nullptr, out, rank};
        op.gradient = device_gradient.data();
        op.grad_d = grad_d.data();
        op.grad_b = grad_b.data();
        backend().vera_gradients(op);
        reference::VeraSlopes expected = reference::vera_slopes(gradient, b, d, scale);
        for (double& value : expected.d) value += 0.5;
        for (double& value : expected.b) value -= 0.25;
        expect_close(doubles(grad_d.download()), expected.d, {1e-5}, "of d");
        expect_close(doubles(grad_b.download()), expected.b, {1e-5}, "of b");
        const std::vector<float> left = device_gradient.download();
        EXPECT_EQ(left, std::vector<float>(left.size(), 0.0F));
    }
}

LORATRAIN_FOR_EACH_BACKEND(VeraTest);

}  // namespace
}  // namespace loratrain

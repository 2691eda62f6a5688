#include "reference/xielu.h"

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

struct Case {
    XieluShape shape;
    reference::XieluFactors factors;
};
constexpr Case cases[] = {{{0.8F, 1.3F}, {0.8F, 1.3F, 0.5}}, {relu_squared, {1.0, 0.0, 0.0}}};

class XieluTest : public BackendTest {
  protected:
    /// From far below 0 to far above, and close to it.
    HostMatrix inputs(std::int64_t rows, std::int64_t cols) const {
        HostMatrix result = random(rows, cols, 1);
        for (std::size_t i = 0; i < result.values.size(); ++i) {
            const double width = i % 3 == 0 ? 8.0 : i % 3 == 1 ? 1.0 : 0.01;
            result.values[i] = reference::rounded_to(dtype(), result.values[i] * width);
        }
        if (rows > 0) result.values[0] = -200.0;
        if (rows > 0) result.values.back() = 0.0;
        return result;
    }
};

TEST_P(XieluTest, AgreesWithLoops) {
    for (const std::int64_t rows : {0, 1, 50}) {
        for (const std::int64_t cols : {1, 13, 2048}) {
            const HostMatrix values = inputs(rows, cols);
            const DeviceMatrix x(backend(), values, 3);
            for (const auto& [shape, factors] : cases) {
                const DeviceMatrix h(backend(), HostMatrix(rows, cols), 2);
                backend().xielu({x.view(), shape, h.view()});
                expect_close(h, reference::xielu(values, factors), "xielu");
            }
        }
    }
}

TEST_P(XieluTest, BackwardAgreesWithLoops) {
    for (const std::int64_t cols : {130, 2048}) {
        const HostMatrix values = inputs(33, cols);
        const HostMatrix dh_values = random(33, cols, 3);
        for (const auto& [shape, factors] : cases) {
            const HostMatrix expected = reference::xielu_backward(values, dh_values, factors);
            const DeviceMatrix x(backend(), values, 8);
            const DeviceMatrix dh(backend(), dh_values);
            const DeviceMatrix dx(backend(), HostMatrix(33, cols), 2);
            backend().xielu_backward({x.view(), shape, dh.view(), dx.view()});
            expect_close(dx, expected, "dx");
            expect_close(dh, dh_values, "dh is only read");
            backend().xielu_backward({x.view(), shape, dh.view(), x.view(), dh.view()});
            expect_close(x, expected, "dx over x");
            expect_close(dh, reference::xielu(values, factors), "h over dh");
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(XieluTest);

}  // namespace
}  // namespace loratrain

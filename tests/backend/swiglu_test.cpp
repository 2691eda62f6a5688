#include "reference/swiglu.h"

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class SwiGluTest : public BackendTest {
  protected:
    HostMatrix gate(std::int64_t rows, std::int64_t cols) const {
        HostMatrix result = random(rows, cols, 1);
        for (double& value : result.values) value = reference::rounded_to(dtype(), value * 8.0);
        if (rows > 0) result.values[0] = -200.0;
        return result;
    }
};

TEST_P(SwiGluTest, AgreesWithLoops) {
    for (const std::int64_t rows : {0, 1, 50}) {
        for (const std::int64_t cols : {1, 13, 2048}) {
            const HostMatrix gate_values = gate(rows, cols);
            const HostMatrix up_values = random(rows, cols, 2);
            const DeviceMatrix gate(backend(), gate_values, 3);
            const DeviceMatrix up(backend(), up_values, 1);
            const DeviceMatrix h(backend(), HostMatrix(rows, cols), 2);
            backend().swiglu({gate.view(), up.view(), h.view()});
            expect_close(h, reference::swiglu(gate_values, up_values), "swiglu");
        }
    }
}

TEST_P(SwiGluTest, BackwardAgreesWithLoops) {
    const HostMatrix gate_values = gate(33, 130);
    const HostMatrix up_values = random(33, 130, 2);
    const HostMatrix dh_values = random(33, 130, 3);
    const auto expected = reference::swiglu_backward(gate_values, up_values, dh_values);
    const DeviceMatrix gate(backend(), gate_values, 3);
    const DeviceMatrix up(backend(), up_values, 1);
    const DeviceMatrix dh(backend(), dh_values);
    const DeviceMatrix dgate(backend(), HostMatrix(33, 130), 2);
    const DeviceMatrix dup(backend(), HostMatrix(33, 130));
    backend().swiglu_backward(
        {gate.view(), up.view(), dh.view(), dgate.view(), dup.view(), TensorView{}});
    expect_close(dgate, expected.dgate, "dgate");
    expect_close(dup, expected.dup, "dup");
    expect_close(dh, dh_values, "dh is only read");

    backend().swiglu_backward(
        {gate.view(), up.view(), dh.view(), gate.view(), up.view(), dh.view()});
    expect_close(gate, expected.dgate, "dgate over gate");
    expect_close(up, expected.dup, "dup over up");
    expect_close(dh, reference::swiglu(gate_values, up_values), "h over dh");
}

TEST_P(SwiGluTest, OtherGatesAgreeWithLoops) {
    for (const std::int64_t i : {0, 1, 2, 3}) {
        const Activation other = i < 2 ? Activation::gelu_tanh : Activation::sigmoid;
        const std::int64_t cols = i % 2 == 0 ? 130 : 2048;
        const HostMatrix gate_values = gate(33, cols);
        const HostMatrix up_values = random(33, cols, 2);
        const HostMatrix dh_values = random(33, cols, 3);
        const auto expected = reference::swiglu_backward(gate_values, up_values, dh_values, other);
        const DeviceMatrix gate(backend(), gate_values);
        const DeviceMatrix up(backend(), up_values);
        const DeviceMatrix dh(backend(), dh_values);
        const DeviceMatrix h(backend(), HostMatrix(33, cols));
        backend().swiglu({gate.view(), up.view(), h.view(), {}, other});
        expect_close(h, reference::swiglu(gate_values, up_values, other), "another gate");
        backend().swiglu_backward(
            {gate.view(), up.view(), dh.view(), gate.view(), up.view(), dh.view(), {}, other});
        expect_close(gate, expected.dgate, "its dgate");
        expect_close(up, expected.dup, "its dup");
        expect_close(dh, reference::swiglu(gate_values, up_values, other), "its h over dh");
    }
}

TEST_P(SwiGluTest, ClampedAgreesWithLoops) {
    constexpr Activation clamped = Activation::clamped_swiglu;
    for (const std::int64_t cols : {1, 13, 2048}) {
        HostMatrix gate_values = gate(33, cols);
        HostMatrix up_values = random(33, cols, 2);
        for (double& value : up_values.values) value = reference::rounded_to(dtype(), 12.0 * value);
        // At the clamps, where the slope is that between them.
        gate_values.values[1] = 7.0;
        up_values.values[2] = -7.0;
        up_values.values[3] = 7.0;
        const HostMatrix dh_values = random(33, cols, 3);
        const DeviceMatrix gate(backend(), gate_values, 2);
        const DeviceMatrix up(backend(), up_values, 1);
        const DeviceMatrix dh(backend(), dh_values);
        const DeviceMatrix h(backend(), HostMatrix(33, cols), 3);
        const auto expected =
            reference::swiglu_backward(gate_values, up_values, dh_values, clamped);
        backend().swiglu({gate.view(), up.view(), h.view(), {}, clamped});
        expect_close(h, reference::swiglu(gate_values, up_values, clamped), "clamped");
        backend().swiglu_backward(
            {gate.view(), up.view(), dh.view(), gate.view(), up.view(), dh.view(), {}, clamped});
        expect_close(gate, expected.dgate, "its dgate");
        expect_close(up, expected.dup, "its dup");
        expect_close(dh, reference::swiglu(gate_values, up_values, clamped), "its h over dh");
    }
}

LORATRAIN_FOR_EACH_BACKEND(SwiGluTest);

}  // namespace
}  // namespace loratrain

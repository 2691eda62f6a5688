#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;
using Outputs = std::vector<std::vector<double>>;

/// The same calls give the same bits.
class RepeatTest : public BackendTest {
  protected:
    static std::vector<double> widened(const DeviceVector<float>& values) {
        const auto floats = values.download();
        return {floats.begin(), floats.end()};
    }

    Outputs lora(std::uint32_t dropout) {
        const LoraLinear linear(backend(), 704, 608, {16, 24}, dropout, 1);
        const PackedSamples samples(backend(), {900, 700});
        const std::vector<LoraSegment> segments{{1, 0, 790, 0}, {0, 790, 1600, 0}};
        const LoraRows rows{segments, samples.rows()};
        const DeviceMatrix x(backend(), random(1600, 704, 1));
        const DeviceMatrix y(backend(), random(1600, 608, 2));
        const DeviceMatrix s(backend(), HostMatrix(1600, linear.columns()));
        const DeviceMatrix ds(backend(), HostMatrix(1600, linear.columns()));
        const std::vector<LoraTarget> forward{linear.target(s.view())};
        const std::vector<LoraTarget> backward{linear.target(ds.view())};
        backend().lora_shrink({x.view(), forward, rows});
        backend().lora_backward({y.view(), forward[0], ds.view(), rows});
        backend().lora_expand({forward[0], y.view(), rows});
        backend().lora_grad_a({x.view(), backward, rows});
        backend().lora_expand_backward({x.view(), backward, rows, true});
        Outputs outputs;
        for (const DeviceMatrix* result : {&x, &y, &s, &ds}) {
            outputs.push_back(result->download().values);
        }
        for (const std::size_t slot : {0, 1}) {
            outputs.push_back(widened(linear.grad_a(slot)));
            outputs.push_back(widened(linear.grad_b(slot)));
        }
        return outputs;
    }

    Outputs gemm_loss_and_norms() {
        const DeviceMatrix a(backend(), random(300, 1040, 1));
        const DeviceMatrix b(backend(), random(3000, 1040, 2));
        const DeviceMatrix logits(backend(), HostMatrix(300, 3000));
        backend().gemm({a.view(), b.view(), logits.view(), false, true});
        const DeviceVector<std::int32_t> targets(backend(), std::vector<std::int32_t>(300, 7));
        const DeviceVector<std::int32_t> bins(backend(), std::vector<std::int32_t>(300, 0));
        const DeviceVector<float> scales(backend(), std::vector<float>(300, 0.3F));
        const DeviceVector<double> losses(backend(), {0.0});
        const DeviceVector<double> wrong(backend(), {0.0});
        backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                 losses.data(), wrong.data(), true});
        const DeviceVector<float> values =
            device_floats(backend(), reference::random_matrix(1, 100001, 4));
        const DeviceVector<double> sum(backend(), {0.0});
        backend().sum_squares(values.data(), 100001, sum.data());
        return {logits.download().values, losses.download(), wrong.download(), sum.download()};
    }
};

TEST_P(RepeatTest, LoraOperators) {
    for (const std::uint32_t dropout : {0U, 10000U}) EXPECT_EQ(lora(dropout), lora(dropout));
}

TEST_P(RepeatTest, GemmLossAndNorms) {
    EXPECT_EQ(gemm_loss_and_norms(), gemm_loss_and_norms());
}

LORATRAIN_FOR_EACH_BACKEND(RepeatTest);

}  // namespace
}  // namespace loratrain

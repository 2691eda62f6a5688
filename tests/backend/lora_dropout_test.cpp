#include "reference/lora.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr std::int64_t tokens = 12;
constexpr std::int64_t in = 40;
constexpr std::int64_t out = 9;

/// One adapter of rank 3 at p = 0.5.
class LoraDropoutTest : public BackendTest {
  protected:
    LoraRows rows() const { return {segments_, samples_.rows()}; }
    LoraLinear linear(std::uint32_t dropout) { return {backend(), in, out, {3}, dropout, 5}; }

    /// Sum of weights ∘ (drop(X) Aᵀ Bᵀ), in the backend's arithmetic.
    double objective(const LoraLinear& lora, const HostMatrix& x, const HostMatrix& weights) {
        const DeviceMatrix device_x(backend(), x);
        const DeviceMatrix s(backend(), HostMatrix(tokens, lora.columns()));
        const DeviceMatrix y(backend(), HostMatrix(tokens, out));
        const std::vector<LoraTarget> targets{lora.target(s.view())};
        backend().lora_shrink({device_x.view(), targets, rows()});
        backend().lora_expand({targets[0], y.view(), rows()});
        const HostMatrix result = y.download();
        double sum = 0.0;
        for (std::size_t i = 0; i < result.values.size(); ++i) {
            sum += weights.values[i] * result.values[i];
        }
        return sum;
    }

    std::vector<LoraSegment> segments_{{0, 0, tokens, 4}};
    PackedSamples samples_{backend(), {5, 7}};
};

TEST_P(LoraDropoutTest, GradientOfXMatchesFiniteDifferences) {
    const LoraLinear lora = linear(dropout_threshold(0.5));
    const HostMatrix x = random(tokens, in, 1);
    const HostMatrix weights = random(tokens, out, 2);
    const DeviceMatrix dy(backend(), weights);
    const DeviceMatrix s(backend(), HostMatrix(tokens, lora.columns()));
    const DeviceMatrix ds(backend(), HostMatrix(tokens, lora.columns()));
    const DeviceMatrix dx(backend(), HostMatrix(tokens, in));
    backend().lora_backward({dy.view(), lora.target(s.view()), ds.view(), rows()});
    const std::vector<LoraTarget> targets{lora.target(ds.view())};
    backend().lora_expand_backward({dx.view(), targets, rows(), false});
    const HostMatrix gradient = dx.download();
    HostMatrix numeric(tokens, in);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        HostMatrix plus = x;
        HostMatrix minus = x;
        plus.values[i] += 1.0;
        minus.values[i] -= 1.0;
        numeric.values[i] =
            (objective(lora, plus, weights) - objective(lora, minus, weights)) / 2.0;
    }
    expect_close(gradient.values, numeric.values, {20.0 * tolerance_of(dtype()).relative}, "dX");
}

TEST_P(LoraDropoutTest, KeepsAboutHalfAndScalesByTwo) {
    LoraLinear lora(backend(), 512, 512, {512}, dropout_threshold(0.5), 5);
    HostMatrix identity(512, 512);
    for (std::int64_t i = 0; i < 512; ++i) identity(i, i) = 1.0;
    const DeviceVector<float> a = device_floats(backend(), identity);
    std::vector<LoraSlot> slots = lora.slots();
    slots[0].a = a.data();
    slots[0].scale = 1.0F;
    const DeviceMatrix x(backend(), HostMatrix(tokens, 512, 1.0));
    const DeviceMatrix s(backend(), HostMatrix(tokens, lora.columns()));
    const std::vector<LoraTarget> targets{{slots, s.view()}};
    backend().lora_shrink({x.view(), targets, rows()});
    const HostMatrix mask = s.download();
    double kept = 0.0;
    for (const double value : mask.values) {
        EXPECT_TRUE(value == 0.0 || value == 2.0);
        kept += value == 2.0 ? 1.0 : 0.0;
    }
    EXPECT_NEAR(kept / (tokens * 512.0), 0.5, 0.03);
}

TEST_P(LoraDropoutTest, MaskDependsOnStepSampleAndPositionOnly) {
    const LoraLinear lora = linear(dropout_threshold(0.5));
    const HostMatrix x = random(1, in, 1);
    const auto shrunk = [&](std::int32_t position, std::int32_t sample, std::uint32_t step) {
        HostMatrix rows_of_x(position + 1, in);
        std::copy(x.values.begin(), x.values.end(), rows_of_x.values.end() - in);
        const PackedSamples samples(backend(), {position + 1}, sample);
        const std::vector<LoraSegment> segments{{0, position, position + 1, step}};
        const DeviceMatrix device_x(backend(), rows_of_x);
        const DeviceMatrix s(backend(), HostMatrix(position + 1, lora.columns()));
        const std::vector<LoraTarget> targets{lora.target(s.view())};
        backend().lora_shrink({device_x.view(), targets, {segments, samples.rows()}});
        const HostMatrix all = s.download();
        return std::vector<double>(all.values.end() - lora.columns(), all.values.end());
    };
    EXPECT_EQ(shrunk(3, 10, 1), shrunk(3, 10, 1));
    EXPECT_NE(shrunk(3, 10, 1), shrunk(4, 10, 1));
    EXPECT_NE(shrunk(3, 10, 1), shrunk(3, 11, 1));
    EXPECT_NE(shrunk(3, 10, 1), shrunk(3, 10, 2));
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(LoraDropoutTest);

}  // namespace
}  // namespace loratrain

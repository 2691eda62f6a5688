#include <limits>

#include "reference/adamw_8bit.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

class AdamW8bitTest : public BackendTest {
  protected:
    /// Parameters with moments of 0.
    struct State {
        State(Backend& backend, const std::vector<float>& start)
            : count(std::ssize(start)),
              parameters(backend, start),
              gradients(backend, std::vector<float>(start.size())),
              first_codes(backend, std::vector<std::uint8_t>(start.size())),
              second_codes(backend, std::vector<std::uint8_t>(start.size())),
              first_scales(backend, std::vector<float>(blocks())),
              second_scales(backend, std::vector<float>(blocks())),
              grad_sumsq(backend, {0.0}),
              applied_steps(backend, {0}),
              skipped_steps(backend, {0}) {}

        std::size_t blocks() const {
            return static_cast<std::size_t>((count + dynamic_block - 1) / dynamic_block);
        }

        AdamW8bit op() const {
            AdamW8bit op;
            op.step.parameters = parameters.data();
            op.step.gradients = gradients.data();
            op.step.count = count;
            op.step.grad_sumsq = grad_sumsq.data();
            op.step.applied_steps = applied_steps.data();
            op.step.skipped_steps = skipped_steps.data();
            op.step.learning_rate = 1e-2;
            op.step.beta2 = 0.95;
            op.step.weight_decay = 0.1;
            op.first_codes = first_codes.data();
            op.second_codes = second_codes.data();
            op.first_scales = first_scales.data();
            op.second_scales = second_scales.data();
            return op;
        }

        std::int64_t count;
        DeviceVector<float> parameters, gradients;
        DeviceVector<std::uint8_t> first_codes, second_codes;
        DeviceVector<float> first_scales, second_scales;
        DeviceVector<double> grad_sumsq;
        DeviceVector<std::int64_t> applied_steps, skipped_steps;
    };

    void step(const State& state, const std::vector<float>& gradients) {
        const AdamW8bit op = state.op();
        backend().upload(op.step.gradients, gradients.data(), gradients.size() * sizeof(float));
        backend().sum_squares({op.step.gradients, state.count, state.grad_sumsq.data()});
        backend().adamw_8bit(op);
    }

    static std::vector<double> decoded(const DynamicMap& map,
                                       const std::vector<std::uint8_t>& codes,
                                       const std::vector<float>& scales) {
        std::vector<double> values;
        for (std::size_t i = 0; i < codes.size(); ++i) {
            values.push_back(map[codes[i]] * static_cast<double>(scales[i / dynamic_block]));
        }
        return values;
    }
};

/// Gradients of all sizes, in one block with a lonely large one below zero, in another none.
TEST_P(AdamW8bitTest, FollowsLoopsForSeveralSteps) {
    constexpr std::int64_t count = 2000;
    const reference::HostMatrix start = reference::random_matrix(1, count, 1);
    const State state(backend(), {start.values.begin(), start.values.end()});
    AdamW op = state.op().step;
    reference::AdamWState expected{start.values, std::vector<double>(count),
                                   std::vector<double>(count), 0};
    for (std::uint64_t seed = 10; seed < 15; ++seed) {
        const reference::HostMatrix g = reference::random_matrix(1, count, seed);
        std::vector<float> gradients(g.values.begin(), g.values.end());
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            gradients[i] *= std::pow(0.1F, static_cast<float>(i % 7));
        }
        gradients[300] = -50.0F;
        std::fill(gradients.begin() + 1024, gradients.begin() + 1280, 0.0F);
        step(state, gradients);
        reference::adamw_8bit(op, {gradients.begin(), gradients.end()},
                              state.grad_sumsq.download()[0], expected);
    }
    const std::vector<float> parameters = state.parameters.download();
    expect_close({parameters.begin(), parameters.end()}, expected.parameters, {1e-4}, "parameters");
    // A number between two of the map may become either; the next one is 3% of the largest away.
    const auto others = [&](const std::vector<double>& got, const std::vector<double>& wanted) {
        std::size_t differ = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            EXPECT_NEAR(got[i], wanted[i], 0.15 * std::fabs(wanted[i]) + 1e-12) << i;
            if (std::fabs(got[i] - wanted[i]) > 1e-4 * std::fabs(wanted[i])) ++differ;
        }
        return differ;
    };
    EXPECT_LE(others(decoded(signed_dynamic_map(), state.first_codes.download(),
                             state.first_scales.download()),
                     expected.first_moments),
              8U);
    EXPECT_LE(others(decoded(unsigned_dynamic_map(), state.second_codes.download(),
                             state.second_scales.download()),
                     expected.second_moments),
              8U);
    EXPECT_EQ(state.gradients.download(), std::vector<float>(count, 0.0F));
    EXPECT_EQ(state.applied_steps.download()[0], 5);
}

/// Whole blocks may be cut off anywhere, and two runs are the same to the bit.
TEST_P(AdamW8bitTest, AStepMayTakeSeveralOps) {
    constexpr std::int64_t count = 3000;
    constexpr std::int64_t cut = 5 * dynamic_block;
    const reference::HostMatrix values = reference::random_matrix(1, count, 1);
    const std::vector<float> start(values.values.begin(), values.values.end());
    const State whole(backend(), start);
    const State parts(backend(), start);
    for (std::uint64_t seed = 10; seed < 14; ++seed) {
        const reference::HostMatrix g = reference::random_matrix(1, count, seed);
        const std::vector<float> gradients(g.values.begin(), g.values.end());
        step(whole, gradients);
        AdamW8bit head = parts.op();
        backend().upload(head.step.gradients, gradients.data(), gradients.size() * sizeof(float));
        backend().sum_squares({head.step.gradients, count, parts.grad_sumsq.data()});
        AdamW8bit tail = parts.op();
        head.step.count = cut;
        tail.step.count = count - cut;
        tail.step.counts = false;
        tail.step.parameters += cut;
        tail.step.gradients += cut;
        tail.first_codes += cut;
        tail.second_codes += cut;
        tail.first_scales += cut / dynamic_block;
        tail.second_scales += cut / dynamic_block;
        backend().adamw_8bit(head);
        backend().adamw_8bit(tail);
    }
    EXPECT_EQ(parts.parameters.download(), whole.parameters.download());
    EXPECT_EQ(parts.first_codes.download(), whole.first_codes.download());
    EXPECT_EQ(parts.second_codes.download(), whole.second_codes.download());
    EXPECT_EQ(parts.first_scales.download(), whole.first_scales.download());
    EXPECT_EQ(parts.second_scales.download(), whole.second_scales.download());
    EXPECT_EQ(parts.applied_steps.download()[0], 4);
}

TEST_P(AdamW8bitTest, ArraysMayBeginAnywhere) {
    constexpr std::int64_t count = 1500;
    const reference::HostMatrix values = reference::random_matrix(1, count, 1);
    const std::vector<float> start(values.values.begin(), values.values.end());
    std::vector<float> behind_one{7.0F};
    behind_one.insert(behind_one.end(), start.begin(), start.end());
    const State usual(backend(), start);
    const State shifted(backend(), behind_one);
    for (std::uint64_t seed = 10; seed < 13; ++seed) {
        const reference::HostMatrix g = reference::random_matrix(1, count, seed);
        const std::vector<float> gradients(g.values.begin(), g.values.end());
        step(usual, gradients);
        AdamW8bit op = shifted.op();
        op.step.count = count;
        ++op.step.parameters;
        ++op.step.gradients;
        ++op.first_codes;
        ++op.second_codes;
        backend().upload(op.step.gradients, gradients.data(), gradients.size() * sizeof(float));
        backend().sum_squares({op.step.gradients, count, shifted.grad_sumsq.data()});
        backend().adamw_8bit(op);
    }
    const auto without_first = [](auto all) {
        all.erase(all.begin());
        return all;
    };
    EXPECT_EQ(shifted.parameters.download()[0], 7.0F);
    EXPECT_EQ(without_first(shifted.parameters.download()), usual.parameters.download());
    EXPECT_EQ(without_first(shifted.first_codes.download()), usual.first_codes.download());
    EXPECT_EQ(without_first(shifted.second_codes.download()), usual.second_codes.download());
    EXPECT_EQ(shifted.first_scales.download(), usual.first_scales.download());
    EXPECT_EQ(shifted.second_scales.download(), usual.second_scales.download());
}

TEST_P(AdamW8bitTest, NonFiniteGradientsAreSkipped) {
    const State state(backend(), std::vector<float>(600, 2.0F));
    step(state, std::vector<float>(600, 0.25F));
    const auto parameters = state.parameters.download();
    const auto codes = state.first_codes.download();
    const auto scales = state.first_scales.download();
    std::vector<float> gradients(600, 1.0F);
    gradients[50] = std::numeric_limits<float>::quiet_NaN();
    step(state, gradients);
    EXPECT_EQ(state.parameters.download(), parameters);
    EXPECT_EQ(state.first_codes.download(), codes);
    EXPECT_EQ(state.first_scales.download(), scales);
    EXPECT_EQ(state.gradients.download(), std::vector<float>(600, 0.0F));
    EXPECT_EQ(state.applied_steps.download()[0], 1);
    EXPECT_EQ(state.skipped_steps.download()[0], 1);
}

LORATRAIN_FOR_EACH_BACKEND(AdamW8bitTest);

}  // namespace
}  // namespace loratrain

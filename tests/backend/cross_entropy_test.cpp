#include "reference/cross_entropy.h"

#include <limits>

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class CrossEntropyTest : public BackendTest {
  protected:
    struct Rows {
        std::vector<std::int32_t> targets;
        std::vector<float> scales;
        std::vector<std::int32_t> bins;
    };

    static Rows rows_of(std::int64_t rows, std::int64_t vocabulary) {
        Rows result;
        for (std::int64_t i = 0; i < rows; ++i) {
            result.targets.push_back(static_cast<std::int32_t>(
                uniform_int(9, static_cast<std::uint64_t>(i), vocabulary)));
            result.scales.push_back(0.25F + static_cast<float>(i % 3));
            result.bins.push_back(static_cast<std::int32_t>(i * 7 % 3));
        }
        return result;
    }

    void check(const HostMatrix& values, std::int64_t padding, const TokenLoss& form = {}) {
        const Rows rows = rows_of(values.rows, values.cols);
        const auto expected =
            reference::cross_entropy(values, rows.targets, rows.scales, rows.bins, 3, {}, form);
        const DeviceVector<std::int32_t> targets(backend(), rows.targets);
        const DeviceVector<float> scales(backend(), rows.scales);
        const DeviceVector<std::int32_t> bins(backend(), rows.bins);
        for (const bool gradient : {false, true}) {
            const DeviceMatrix logits(backend(), values, padding);
            const DeviceVector<double> losses(backend(), {1.0, 2.0, 3.0});
            const DeviceVector<double> wrong(backend(), {10.0, 20.0, 30.0});
            backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                     losses.data(), wrong.data(), gradient, nullptr, form});
            expect_close(logits, gradient ? expected.gradients : values, "d-logits");
            auto loss_sums = losses.download();
            auto wrong_counts = wrong.download();
            for (std::size_t bin = 0; bin < 3; ++bin) {
                loss_sums[bin] -= 1.0 + static_cast<double>(bin);
                wrong_counts[bin] -= 10.0 + 10.0 * static_cast<double>(bin);
            }
            expect_close(loss_sums, expected.loss_sums, sum_tolerance_of(dtype()), "losses");
            EXPECT_EQ(wrong_counts, expected.wrong_counts);
        }
    }
};

TEST_P(CrossEntropyTest, AgreesWithLoops) {
    check(HostMatrix(0, 10), 0);
    check(random(1, 1, 1), 0);
    check(random(7, 5, 1), 3);
    check(random(64, 1025, 2), 7);
    HostMatrix sharp = random(40, 32000, 3);
    for (double& value : sharp.values) value = reference::rounded_to(dtype(), value * 40.0);
    check(sharp, 64);
}

TEST_P(CrossEntropyTest, OtherLossesOfTokensAgreeWithLoops) {
    for (const TokenLoss& form :
         {TokenLoss{0.1F, 0.0F, false}, TokenLoss{0.0F, 0.01F, false}, TokenLoss{0.0F, 0.0F, true},
          TokenLoss{0.3F, 0.02F, true}, TokenLoss{0.0F, 0.0F, false, true}}) {
        check(random(1, 1, 1), 0, form);
        check(random(7, 5, 1), 3, form);
        check(random(64, 1025, 2), 7, form);
        HostMatrix sharp = random(20, 4096, 3);
        for (double& value : sharp.values) value = reference::rounded_to(dtype(), value * 20.0);
        check(sharp, 64, form);
    }
}

TEST_P(CrossEntropyTest, GradientsOfCappedLogitsAreThoseBefore) {
    constexpr float cap = 3.0F;
    for (const TokenLoss& form : {TokenLoss{}, TokenLoss{0.3F, 0.02F, true}}) {
        for (const std::int64_t cols : {50, 1024}) {
            HostMatrix values = random(33, cols, 2);
            for (double& value : values.values) {
                value = reference::rounded_to(dtype(), cap * std::tanh(value));
            }
            const Rows rows = rows_of(values.rows, values.cols);
            auto expected =
                reference::cross_entropy(values, rows.targets, rows.scales, rows.bins, 3, {}, form);
            for (std::size_t i = 0; i < values.values.size(); ++i) {
                const double t = values.values[i] / double{cap};
                expected.gradients.values[i] *= 1.0 - t * t;
            }
            const DeviceMatrix logits(backend(), values);
            const DeviceVector<std::int32_t> targets(backend(), rows.targets);
            const DeviceVector<float> scales(backend(), rows.scales);
            const DeviceVector<std::int32_t> bins(backend(), rows.bins);
            const DeviceVector<double> losses(backend(), {0.0, 0.0, 0.0});
            const DeviceVector<double> wrong(backend(), {0.0, 0.0, 0.0});
            backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                     losses.data(), wrong.data(), true, nullptr, form, cap});
            expect_close(logits, expected.gradients, "d-logits before a cap");
            expect_close(losses.download(), expected.loss_sums, sum_tolerance_of(dtype()),
                         "losses");
        }
    }
}

TEST_P(CrossEntropyTest, LossesAreSummedByWeights) {
    const HostMatrix values = random(33, 50, 2);
    const Rows rows = rows_of(values.rows, values.cols);
    std::vector<float> of_rows;
    for (std::size_t i = 0; i < 33; ++i) of_rows.push_back(0.1F * static_cast<float>(i % 7));
    const auto expected =
        reference::cross_entropy(values, rows.targets, rows.scales, rows.bins, 3, of_rows);
    const DeviceMatrix logits(backend(), values);
    const DeviceVector<std::int32_t> targets(backend(), rows.targets);
    const DeviceVector<float> scales(backend(), rows.scales);
    const DeviceVector<std::int32_t> bins(backend(), rows.bins);
    const DeviceVector<float> weights(backend(), of_rows);
    const DeviceVector<double> losses(backend(), {0.0, 0.0, 0.0});
    const DeviceVector<double> wrong(backend(), {0.0, 0.0, 0.0});
    backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                             losses.data(), wrong.data(), true, weights.data()});
    expect_close(logits, expected.gradients, "d-logits");
    expect_close(losses.download(), expected.loss_sums, sum_tolerance_of(dtype()), "losses");
    EXPECT_EQ(wrong.download(), expected.wrong_counts);
}

TEST_P(CrossEntropyTest, FirstOfEqualLogitsIsTheGuess) {
    HostMatrix values(3, 4, 0.5);
    values(2, 3) = 0.75;
    const DeviceMatrix logits(backend(), values);
    const DeviceVector<std::int32_t> targets(backend(), {0, 1, 3});
    const DeviceVector<float> scales(backend(), {1.0F, 1.0F, 1.0F});
    const DeviceVector<std::int32_t> bins(backend(), {0, 1, 2});
    const DeviceVector<double> losses(backend(), {0.0, 0.0, 0.0});
    const DeviceVector<double> wrong(backend(), {0.0, 0.0, 0.0});
    backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                             losses.data(), wrong.data(), false});
    EXPECT_EQ(wrong.download(), (std::vector<double>{0.0, 1.0, 0.0}));
}

TEST_P(CrossEntropyTest, NotANumberStaysInItsRowAndBin) {
    HostMatrix values = random(2, 50, 1);
    values(0, 20) = std::numeric_limits<double>::quiet_NaN();
    const DeviceMatrix logits(backend(), values);
    const DeviceVector<std::int32_t> targets(backend(), {3, 4});
    const DeviceVector<float> scales(backend(), {1.0F, 1.0F});
    const DeviceVector<std::int32_t> bins(backend(), {0, 1});
    const DeviceVector<double> losses(backend(), {0.0, 0.0});
    const DeviceVector<double> wrong(backend(), {0.0, 0.0});
    backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                             losses.data(), wrong.data(), true});
    const auto sums = losses.download();
    EXPECT_TRUE(std::isnan(sums[0]));
    EXPECT_TRUE(std::isfinite(sums[1]));
    const HostMatrix gradients = logits.download();
    for (std::int64_t j = 0; j < 50; ++j) {
        EXPECT_TRUE(std::isnan(gradients(0, j)));
        EXPECT_TRUE(std::isfinite(gradients(1, j)));
    }
}

/// As a mask leaves them: in more columns than a block's threads take first.
TEST_P(CrossEntropyTest, LogitsOfMinusInfinityCountNothing) {
    constexpr std::int64_t masked = 5000;
    const HostMatrix seen = random(5, 3192, 4);
    HostMatrix values(seen.rows, masked + seen.cols, -std::numeric_limits<double>::infinity());
    for (std::int64_t i = 0; i < seen.rows; ++i) {
        for (std::int64_t j = 0; j < seen.cols; ++j) values(i, masked + j) = seen(i, j);
    }
    for (const TokenLoss& form :
         {TokenLoss{}, TokenLoss{0.0F, 0.01F, false}, TokenLoss{0.0F, 0.0F, true},
          TokenLoss{0.0F, 0.0F, false, true}}) {
        const Rows rows = rows_of(seen.rows, seen.cols);
        const auto expected =
            reference::cross_entropy(seen, rows.targets, rows.scales, rows.bins, 3, {}, form);
        std::vector<std::int32_t> behind = rows.targets;
        for (std::int32_t& target : behind) target += static_cast<std::int32_t>(masked);
        HostMatrix gradients(values.rows, values.cols);
        for (std::int64_t i = 0; i < seen.rows; ++i) {
            for (std::int64_t j = 0; j < seen.cols; ++j) {
                gradients(i, masked + j) = expected.gradients(i, j);
            }
        }
        const DeviceMatrix logits(backend(), values);
        const DeviceVector<std::int32_t> targets(backend(), behind);
        const DeviceVector<float> scales(backend(), rows.scales);
        const DeviceVector<std::int32_t> bins(backend(), rows.bins);
        const DeviceVector<double> losses(backend(), {0.0, 0.0, 0.0});
        const DeviceVector<double> wrong(backend(), {0.0, 0.0, 0.0});
        backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                 losses.data(), wrong.data(), true, nullptr, form});
        expect_close(logits, gradients, "d-logits");
        expect_close(losses.download(), expected.loss_sums, sum_tolerance_of(dtype()), "losses");
        EXPECT_EQ(wrong.download(), expected.wrong_counts);
    }
}

LORATRAIN_FOR_EACH_BACKEND(CrossEntropyTest);

}  // namespace
}  // namespace loratrain

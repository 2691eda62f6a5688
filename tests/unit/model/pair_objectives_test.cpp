#include "model/objective/objectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace loratrain::test {
namespace {

/// Two pairs: z, z under the base, targets.
struct Pairs {
    std::vector<SampleRef> samples{{0, 9, 4}, {1, 9, 7}, {2, 9, 1}, {3, 9, 3}};
    std::vector<double> nll{3.0, 9.5, 2.25, 4.0};
    std::vector<double> reference{3.5, 9.0, 2.0, 4.5};
    LossJob loss{Loss::dpo};

    /// The chosen samples have five targets.
    ObjectiveSamples view() const {
        return {samples, nll, reference, loss, loss.nll_weight() * 2.0 / 5.0};
    }
    const Objective& objective() const {
        AdapterJob adapter;
        adapter.loss = loss;
        return objective_of(adapter);
    }
    std::vector<double> losses() const {
        std::vector<double> values(4, -1.0);
        objective().losses(view(), values);
        return values;
    }
    double sum() const {
        double total = 0.0;
        for (const double value : losses()) total += value;
        return total;
    }
};

double logistic_loss(double x) {
    return std::log(1.0 + std::exp(-x));
}

TEST(DpoObjective, SigmoidIsThePapersLoss) {
    Pairs pairs;
    pairs.loss.beta = 0.5;
    const std::vector<double> losses = pairs.losses();
    EXPECT_NEAR(losses[0], logistic_loss(0.5 * (0.5 - -0.5)), 1e-15);
    EXPECT_NEAR(losses[2], logistic_loss(0.5 * (-0.25 - 0.5)), 1e-15);
    EXPECT_EQ(losses[1], 0.0);
    EXPECT_EQ(losses[3], 0.0);
    pairs.loss.label_smoothing = 0.2;
    EXPECT_NEAR(pairs.losses()[0], 0.8 * logistic_loss(0.5) + 0.2 * logistic_loss(-0.5), 1e-15);
}

TEST(DpoObjective, HingeAndIpo) {
    Pairs pairs;
    pairs.loss.beta = 2.0;
    pairs.loss.type = LossType::hinge;
    EXPECT_EQ(pairs.losses()[0], 0.0);  // 2 (0.5 + 0.5) is beyond 1
    EXPECT_NEAR(pairs.losses()[2], 1.0 + 2.0 * 0.75, 1e-15);
    pairs.loss.type = LossType::ipo;  // log-probabilities per target
    EXPECT_NEAR(pairs.losses()[0], std::pow(0.5 / 4 + 0.5 / 7 - 0.25, 2), 1e-15);
}

/// As TRL writes them, over both pairs.
TEST(CpoObjective, HasNoReference) {
    Pairs pairs;
    pairs.loss = {Loss::cpo, LossType::sigmoid, 0.5};
    EXPECT_NEAR(pairs.sum() / 2,
                (logistic_loss(0.5 * 6.5) + logistic_loss(0.5 * 1.75)) / 2 + (3.0 + 2.25) / 5,
                1e-14);
    pairs.loss.cpo_alpha = 0.0;
    EXPECT_NEAR(pairs.losses()[0], logistic_loss(0.5 * 6.5), 1e-15);
    pairs.loss.type = LossType::hinge;
    EXPECT_EQ(pairs.losses()[2], 1.0 - 0.5 * 1.75);
}

TEST(CpoObjective, SimpoAimsAtAMargin) {
    Pairs pairs;
    pairs.loss = {Loss::simpo, LossType::ipo, 2.0, 0.0, 0.6};  // its type is not read
    EXPECT_NEAR(pairs.losses()[0], logistic_loss(2.0 * (9.5 / 7 - 3.0 / 4) - 0.6), 1e-15);
    pairs.loss.cpo_alpha = 0.5;
    EXPECT_NEAR(pairs.losses()[0],
                logistic_loss(2.0 * (9.5 / 7 - 3.0 / 4) - 0.6) + 0.5 * 3.0 * 2.0 / 5.0, 1e-14);
}

TEST(OrpoObjective, ComparesOdds) {
    Pairs pairs;
    pairs.loss = {Loss::orpo, LossType::sigmoid, 0.3};
    const auto odds = [](double nll, double targets) {
        const double p = std::exp(-nll / targets);
        return p / (1.0 - p);
    };
    const double ratio = std::log(odds(3.0, 4) / odds(9.5, 7));
    EXPECT_NEAR(pairs.losses()[0], 0.3 * logistic_loss(ratio) + 3.0 * 2.0 / 5.0, 1e-14);
    pairs.nll[0] = 0.0;  // certain
    EXPECT_TRUE(std::isfinite(pairs.sum()));
}

LossJob loss_of(Loss loss, LossType type, double smoothing) {
    LossJob job;
    job.loss = loss;
    job.type = type;
    job.beta = 0.7;
    job.label_smoothing = smoothing;
    return job;
}

TEST(PairObjective, ScalesAreTheSlopesOfTheLosses) {
    std::vector<LossJob> losses;
    for (const LossType type : {LossType::sigmoid, LossType::hinge, LossType::ipo}) {
        for (const double smoothing : {0.0, 0.3}) {
            for (const Loss loss : {Loss::dpo, Loss::cpo, Loss::simpo, Loss::orpo}) {
                losses.push_back(loss_of(loss, type, smoothing));
            }
        }
    }
    for (const LossJob& loss : losses) {
        Pairs pairs;
        pairs.loss = loss;
        std::vector<float> scales(4);
        pairs.objective().scales(pairs.view(), 2, scales);
        for (std::size_t s = 0; s < 4; ++s) {
            const double h = 1e-5;
            Pairs up = pairs;
            Pairs down = pairs;
            up.nll[s] += h;
            down.nll[s] -= h;
            EXPECT_NEAR(scales[s], (up.sum() - down.sum()) / (2 * h) / 2, 1e-6)
                << static_cast<int>(loss.loss) << " " << static_cast<int>(loss.type) << " " << s;
        }
    }
}

TEST(DpoObjective, LargeMarginsStayFinite) {
    for (const double far : {-4000.0, 4000.0}) {
        Pairs pairs;
        pairs.nll[0] = far;
        std::vector<float> scales(4);
        DpoObjective().scales(pairs.view(), 2, scales);
        EXPECT_TRUE(std::isfinite(pairs.sum()) && std::isfinite(scales[0])) << far;
        EXPECT_NEAR(scales[0], far > 0 ? 0.05 : 0.0, 1e-6);
    }
}

TEST(DpoObjective, RewardsAreTrls) {
    Pairs pairs;
    const RewardSums sums = DpoObjective().rewards(pairs.view());
    EXPECT_NEAR(sums.chosen, 0.1 * (0.5 - 0.25), 1e-15);
    EXPECT_NEAR(sums.rejected, 0.1 * (-0.5 + 0.5), 1e-15);
    EXPECT_EQ(sums.accuracies, 1.0);
    EXPECT_NEAR(sums.logps_chosen, -5.25, 1e-15);
    EXPECT_NEAR(sums.logps_rejected, -13.5, 1e-15);
    EXPECT_NEAR(means_of(sums).logps_rejected, -6.75, 1e-15);
}

TEST(DpoObjective, ABatchOfNothingAndSamplesWithoutTargets) {
    Pairs pairs;
    std::vector<float> scales(4, 1.0F);
    DpoObjective().scales(pairs.view(), 0, scales);
    EXPECT_EQ(scales, std::vector<float>(4, 0.0F));
    pairs.loss.type = LossType::ipo;
    pairs.samples[1].targets = 0;
    pairs.nll[1] = pairs.reference[1] = 0.0;
    EXPECT_TRUE(std::isfinite(pairs.sum()));
    std::vector<float> odd(3);
    EXPECT_THROW(DpoObjective().scales(pairs.view(), 2, odd), Error);
}

}  // namespace
}  // namespace loratrain::test

#include "model/objective/objectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace loratrain::test {
namespace {

/// Two groups of two examples and two KL samples.
struct Examples {
    std::vector<SampleRef> samples{{0, 9, 4}, {1, 9, 7, true}, {2, 9, 1}, {3, 9, 3, true},
                                   {4, 9, 4}, {5, 9, 7},       {6, 9, 1}, {7, 9, 3}};
    std::vector<double> nll{3.0, 9.5, 2.25, 4.0, 5.0, 6.0, 8.0, 7.0};
    std::vector<double> reference{3.5, 9.0, 3.0, 4.75, 4.0, 7.0, 8.25, 6.0};
    LossJob loss{Loss::kto};

    ObjectiveSamples view() const { return {samples, nll, reference, loss, 0.0, 4}; }
    std::vector<double> losses() const {
        std::vector<double> values(8, -1.0);
        KtoObjective().losses(view(), values);
        return values;
    }
};

double logistic(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

TEST(KtoObjective, IsTrlsLoss) {
    Examples examples;
    examples.loss.beta = 0.5;
    examples.loss.desirable_weight = 1.5;
    examples.loss.undesirable_weight = 0.8;
    const std::vector<double> losses = examples.losses();
    const double kl = (0.75 + 0.75) / 2;
    EXPECT_NEAR(losses[0], 1.5 * (1 - logistic(0.5 * (0.5 - kl))), 1e-15);
    EXPECT_NEAR(losses[1], 0.8 * (1 - logistic(0.5 * (kl + 0.5))), 1e-15);
    // Of the second group the mean is below 0.
    EXPECT_NEAR(losses[4], 1.5 * (1 - logistic(0.5 * -1.0)), 1e-15);
    EXPECT_NEAR(losses[5], 1.5 * (1 - logistic(0.5 * 1.0)), 1e-15);
    for (const std::size_t kl_sample : {2, 3, 6, 7}) EXPECT_EQ(losses[kl_sample], 0.0);
}

TEST(KtoObjective, ScalesAreTheSlopesOfTheExamplesLosses) {
    const Examples examples;
    std::vector<float> scales(8, 1.0F);
    KtoObjective().scales(examples.view(), 4, scales);
    for (const std::size_t s : {0, 1, 4, 5}) {
        const double h = 1e-5;
        Examples up = examples;
        Examples down = examples;
        up.nll[s] += h;
        down.nll[s] -= h;
        EXPECT_NEAR(scales[s], (up.losses()[s] - down.losses()[s]) / (2 * h) / 4, 1e-6) << s;
        EXPECT_NE(scales[s], 0.0F);
    }
    for (const std::size_t kl_sample : {2, 3, 6, 7}) EXPECT_EQ(scales[kl_sample], 0.0F);
    KtoObjective().scales(examples.view(), 0, scales);
    EXPECT_EQ(scales, std::vector<float>(8, 0.0F));
}

TEST(KtoObjective, RewardsCountBothKinds) {
    const RewardMeans means = means_of(KtoObjective().rewards(Examples().view()));
    EXPECT_NEAR(means.chosen, 0.1 * (0.5 - 1.0 + 1.0) / 3, 1e-15);
    EXPECT_NEAR(means.rejected, 0.1 * -0.5, 1e-15);
    EXPECT_NEAR(means.logps_rejected, -9.5, 1e-15);
    EXPECT_NEAR(means.kl, 0.75 / 2, 1e-15);
}

TEST(KtoObjective, FarExamplesStayFiniteAndGroupsWhole) {
    Examples examples;
    examples.nll[0] = 1e5;
    examples.nll[1] = -1e5;
    for (const double loss : examples.losses()) EXPECT_TRUE(std::isfinite(loss));
    ObjectiveSamples cut = examples.view();
    cut.samples = cut.samples.first(6);
    std::vector<double> losses(6);
    EXPECT_THROW(KtoObjective().losses(cut, losses), Error);
}

}  // namespace
}  // namespace loratrain::test

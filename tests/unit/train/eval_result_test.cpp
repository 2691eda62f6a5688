#include "train/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace loratrain::test {
namespace {

TEST(EvalResult, TravelsToTheBit) {
    const std::vector<EvalResult> results{
        {AdapterId{3}, 20, 7, 0.1 + 0.2, 2, 5},
        {AdapterId{0}, 0, 1, std::numeric_limits<double>::quiet_NaN(), 0, 1},
        {AdapterId{1},
         5,
         2,
         std::numeric_limits<double>::infinity(),
         1,
         1,
         0,
         true,
         {0.1, -2.0, 3.0, -1e-300, std::numeric_limits<double>::quiet_NaN(), 1.0, 2.0, 0.3, 4.0}}};
    std::string bytes;
    send_as_messages(results, [&](std::string message) { bytes = std::move(message); });
    const auto read = std::get<std::vector<EvalResult>>(report_from_bytes(bytes));
    ASSERT_EQ(read.size(), 3U);
    EXPECT_EQ(read[0].adapter, AdapterId{3});
    EXPECT_EQ(read[0].step, 20);
    EXPECT_EQ(read[0].denominator, 7);
    EXPECT_EQ(read[0].loss_sum, 0.1 + 0.2);
    EXPECT_EQ(read[0].exact_samples, 2);
    EXPECT_EQ(read[0].samples, 5);
    EXPECT_TRUE(std::isnan(read[1].loss_sum));
    EXPECT_TRUE(std::isinf(read[2].loss_sum));
    EXPECT_FALSE(read[1].training);
    EXPECT_TRUE(read[2].training);
    EXPECT_EQ(read[2].rewards.chosen, 0.1);
    EXPECT_EQ(read[2].rewards.rejected, -2.0);
    EXPECT_EQ(read[2].rewards.accuracies, 3.0);
    EXPECT_EQ(read[2].rewards.logps_chosen, -1e-300);
    EXPECT_TRUE(std::isnan(read[2].rewards.logps_rejected));
    EXPECT_EQ(read[2].rewards.rejected_samples, 2.0);
    EXPECT_EQ(read[2].rewards.kl, 0.3);
    EXPECT_EQ(read[2].rewards.kl_groups, 4.0);
    EXPECT_THROW(report_from_bytes(bytes.substr(1)), Error);
}

TEST(EvalResult, RewardsOfReplicasAddUp) {
    EvalResult sum{AdapterId{0}, 1, 4, 0, 0, 0, 0, true, {1, 2, 3, 4, 5, 3, 3}};
    sum.add({AdapterId{0}, 1, 4, 0, 0, 0, 1, true, {1, 2, 1, 4, 5, 1, 1}});
    const RewardMeans means = means_of(sum.rewards);
    EXPECT_TRUE(std::isnan(means.kl));
    EXPECT_EQ(means.chosen, 0.5);
    EXPECT_EQ(means.rejected, 1.0);
    EXPECT_EQ(means.accuracies, 1.0);
    EXPECT_EQ(means.logps_chosen, 2.0);
    EXPECT_EQ(means.logps_rejected, 2.5);
}

TEST(EvalResult, MeansAreOfTargetsAndSamples) {
    const EvalResult result{AdapterId{0}, 1, 4, 6.0, 1, 2};
    EXPECT_EQ(result.loss(), 1.5);
    EXPECT_EQ(result.exact_match(), 0.5);
    EXPECT_EQ(EvalResult{}.loss(), 0.0);
    EXPECT_EQ(EvalResult{}.exact_match(), 0.0);
}

}  // namespace
}  // namespace loratrain::test

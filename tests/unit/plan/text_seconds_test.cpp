#include "plan/predict/text_seconds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {
namespace {

/// Two replicas, and an adapter with rewards on prompts of 1 and of 8 tokens, as many of each.
class TextSecondsTest : public ::testing::Test {
  protected:
    TextSecondsTest() {
        test_.job.parallel.deployment = {{1, 1, 2, {}}};
        plan_ = test_.plan();
        AdapterJob& adapter = test_.job.adapters.front();
        adapter.rewards.program = "reward";
        adapter.rewards.prompts = DatasetId{0};
        adapter.rewards.max_new_tokens = 20;
        adapter.global_batch_size = 48;
        std::vector<SampleInfo>& samples = test_.datasets.front().train;
        for (std::size_t i = 0; i < samples.size(); i += 2) {
            samples[i].targets = samples[i].tokens - 8;
        }
    }
    double seconds() const { return text_seconds(test_.job, plan_, test_.datasets).seconds; }
    double seconds_of_batch(std::int64_t texts) {
        test_.job.adapters.front().global_batch_size = texts;
        return seconds();
    }

    Case test_ = uniform_case(1, 2, 8, 16, 4);
    Plan plan_;
};

TEST_F(TextSecondsTest, OfTheReplicaThatHoldsThePrompts) {
    ASSERT_EQ(plan_.replicas.size(), 2U);
    const double equal = seconds();
    plan_.replicas[1].microbatch_tokens = 4;
    const double unequal = seconds();
    EXPECT_GT(unequal, 1.02 * equal) << "36 of 48 texts are the first one's";
    std::swap(plan_.replicas[0].microbatch_tokens, plan_.replicas[1].microbatch_tokens);
    EXPECT_DOUBLE_EQ(seconds(), unequal) << "whichever it is";
}

TEST_F(TextSecondsTest, OfEqualReplicasHalfEach) {
    EXPECT_DOUBLE_EQ(seconds_of_batch(47), seconds_of_batch(48));
    EXPECT_GT(seconds_of_batch(49), seconds_of_batch(48));
}

}  // namespace
}  // namespace loratrain::plan_test

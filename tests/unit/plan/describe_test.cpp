#include "plan/text/describe.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/sample_counts.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

TEST(Describe, ShowsStagesAndAdapters) {
    const Case test = uniform_case(3, 2, 20, 10, 8);
    const std::string text = described(test);
    for (const char* words :
         {"2 layers", "a2", "embedding", "head", "first round 2 microbatches, 240 tokens",
          "steps/epoch", "200", "workspace"}) {
        EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
    }
}

/// As global_batch_size counts.
TEST(Describe, PairsAndExamplesAreCountedAsSuch) {
    EXPECT_EQ(units_of(20, 1), 20);
    EXPECT_EQ(units_of(20, 2), 10);
    EXPECT_EQ(units_of(48, 16), 24) << "groups of 8 examples and their KL samples";
    EXPECT_STREQ(unit_word(1), "samples");
    EXPECT_STREQ(unit_word(2), "pairs");
    EXPECT_STREQ(unit_word(16), "examples");
    const Case test = uniform_case(1, 2, 20, 10, 8);
    Plan plan = test.plan();
    const std::int64_t samples = plan.adapters[0].samples;
    plan.adapters[0].group_samples = 2;
    const std::string text = describe(test.job, plan, {}, test.datasets);
    EXPECT_NE(text.find(cat(" ", samples / 2, " pairs ")), std::string::npos) << text;
}

TEST(Describe, NamesFewAdaptersOfASharedLayerAndCountsMany) {
    Case test = uniform_case(7, 3, 20, 10, 8);
    test.model = cheap_head_model(6);
    test.job.parallel.microbatch_tokens = 64;
    Plan plan = test.plan();
    const auto shows = [&](const std::string& words) {
        return describe(test.job, plan, {}, test.datasets).find(words) != std::string::npos;
    };
    EXPECT_TRUE(shows(" 2-3  "));
    share_first_layer(plan, 0, 3);
    EXPECT_TRUE(shows(" 0-1, 2 of a0, a1, a2  "));
    EXPECT_TRUE(shows(" 3, 2 of 4 adapters  "));
    EXPECT_TRUE(shows(" 4-5  "));
    share_first_layer(plan, 1, 4);
    EXPECT_TRUE(shows(" 3, 2 of 4 adapters, 4 of 4 adapters  "));
    EXPECT_TRUE(shows(" 5, 4 of a4, a5, a6  "));
}

TEST(Describe, CopiesForACheckpointAreReported) {
    Case test = uniform_case(2, 2, 20, 10, 8);
    test.job.checkpoint.every_steps = 10;
    const auto shown = [&] { return describe(test.job, test.plan(), {}, test.datasets); };
    EXPECT_EQ(shown().find("checkpoint  "), std::string::npos) << "a few bytes";
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 1 << 21U;
    const std::string text = shown();
    EXPECT_NE(text.find("for copies of 2 adapters while they train"), std::string::npos) << text;
    EXPECT_NE(text.find(" of host memory on rank 0, "), std::string::npos) << text;
    test.job.checkpoint.every_steps = 0;
    test.job.checkpoint.every_minutes = 0;
    EXPECT_EQ(shown().find("checkpoint  "), std::string::npos) << "none while they train";
}

}  // namespace loratrain::plan_test

#include "plan/deployments/redeploy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/model_presets.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/find_deployments.h"
#include "unit/plan/deployment_cases.h"

namespace loratrain::plan_test {

namespace {

/// On two GPUs: "many" has batches of many short samples, "long" one long sample a step, which only
/// two lanes share well.
Case two_kinds() {
    Case test = uniform_case(2, 2, 64, 256, 64);
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.cluster.ranks_per_node = 2;
    test.job.parallel.microbatch_tokens.reset();
    test.job.datasets.resize(2);
    test.datasets.resize(2);
    test.datasets[1].train.assign(8, {8192, 8191});
    test.job.adapters[1].dataset = DatasetId{1};
    test.job.adapters[1].global_batch_size = 1;
    for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 4000;
    test.job.parallel.find_deployment = true;
    return test;
}

Redeployment judged(const Case& test, const std::vector<std::int32_t>& left) {
    Job job = test.job;
    for (std::size_t a = 0; a < left.size(); ++a) job.adapters[a].ended = left[a] == 0;
    return judge_deployment(job, test.plan(), test.datasets, test.cluster, left);
}

}  // namespace

TEST(Redeploy, ALongSampleAStepIsSharedOnceItIsAlone) {
    Case test = two_kinds();
    test.job.parallel.deployment = {{1, 1, 2, {}}};
    const Redeployment alone = judged(test, {0, 4000});
    ASSERT_EQ(alone.deployment.size(), 1U);
    EXPECT_EQ(alone.deployment.front().tensor, 2);
    EXPECT_LT(alone.seconds_then, 0.9 * alone.seconds_now);
    EXPECT_TRUE(alone.pays());
    test.job.parallel.deployment = alone.deployment;
    const Redeployment again = judged(test, {0, 4000});
    EXPECT_TRUE(again.deployment.empty());
    EXPECT_FALSE(again.pays());
    EXPECT_NEAR(again.seconds_now, alone.seconds_then, 0.01 * alone.seconds_then);
}

TEST(Redeploy, WhatIsLeftMustPayForTheChange) {
    Case test = two_kinds();
    test.job.parallel.deployment = {{1, 1, 2, {}}};
    const Redeployment little = judged(test, {0, 40});
    EXPECT_GT(little.seconds_now, 0.0);
    EXPECT_GT(little.cost, 40.0);  // 15 GiB of weights are read anew
    EXPECT_FALSE(little.pays());
    EXPECT_FALSE(judged(test, {0, 0}).pays());
}

TEST(Redeploy, ItsSamplesNeedNoRoomOnceAnAdapterHasEnded) {
    Case test = two_kinds();
    test.job.parallel.deployment = {{1, 1, 2, 1024}};
    EXPECT_THROW(test.plan(), InputError);
    test.job.adapters[1].ended = true;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.replicas.front().microbatch_tokens, 1024);
    EXPECT_EQ(plan.adapters.size(), 2U);
}

TEST(Redeploy, TheRestHasTheStepsThatAreLeft) {
    const Case test = two_kinds();
    const Job rest = rest_of(test.job, {0, 7});
    ASSERT_EQ(rest.adapters.size(), 1U);
    EXPECT_EQ(rest.adapters.front().name, test.job.adapters[1].name);
    EXPECT_EQ(rest.adapters.front().max_steps, 7);
}

TEST(Redeploy, SaysWhatItComparesAndWhatItCosts) {
    const Redeployment other{{{2, 1, 1, {}}}, 7200.0, 3600.0, 46.0};
    const std::string text = other.text({{1, 1, 2, {}}});
    for (const char* part :
         {"2 h", "[{tp: 1, pp: 1, count: 2}]", "1 h", "[{tp: 2, pp: 1}]", "46 s"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_TRUE(other.pays());
}

}  // namespace loratrain::plan_test

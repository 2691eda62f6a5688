#include "plan/deployments/compare_deployments.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/deploy/replica_options.h"
#include "plan/text/describe_prediction.h"
#include "unit/plan/deployment_cases.h"

namespace loratrain::plan_test {

namespace {

DeploymentOptions options_of(const Case& test) {
    return replica_options(test.job, test.plan(), test.datasets, test.cluster);
}

DeploymentComparison compared(const Case& test) {
    return compare_deployments(
        test.job, test.plan(), test.datasets, test.cluster,
        find_deployments(test.job, test.model, test.datasets, test.cluster, {4}),
        predict(test.job, test.plan(), test.datasets, 4), 4);
}

}  // namespace

TEST(ReplicaOptions, AreAllCutsOfTheModel) {
    const DeploymentOptions options = options_of(skewed_case(4));
    std::vector<std::pair<int, int>> cuts;
    for (const ReplicaJob& replica : options.replicas) {
        cuts.emplace_back(replica.tensor, replica.stages);
        EXPECT_EQ(replica.microbatch_tokens, std::nullopt);
    }
    EXPECT_EQ(cuts, (std::vector<std::pair<int, int>>{
                        {1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}, {2, 2}, {4, 1}}));
    EXPECT_EQ(options.task.ranks, 4);
    EXPECT_DOUBLE_EQ(std::accumulate(options.task.samples.begin(), options.task.samples.end(), 0.0),
                     48.0);
    for (const std::vector<std::int32_t>& round : options.task.rounds) {
        EXPECT_EQ(std::accumulate(round.begin(), round.end(), 0), 48);
    }
    for (const ReplicaOption& option : options.task.options) {
        ASSERT_EQ(option.seconds.size(), options.task.samples.size());
        EXPECT_GT(option.seconds.front(), 0.0);
        EXPECT_GT(option.seconds.back(), 3.0 * option.seconds.front());
    }
    EXPECT_EQ(options.task.options[0].filling, 0.0);
    EXPECT_GT(options.task.options[3].filling, options.task.options[1].filling);
}

/// Of several adapters a pipeline is filled once; one that trains alone waits for its step.
TEST(ReplicaOptions, PipelinesOfSeveralAdaptersAreFilledOnce) {
    Case test = skewed_case(4);
    test.job.parallel.microbatch_tokens = 200;
    const DeploymentTask several = options_of(test).task;
    test.job.adapters.resize(1);
    const DeploymentTask alone = options_of(test).task;
    ASSERT_GT(several.rounds.size(), 1U);
    for (const std::size_t pipeline : {1U, 2U, 3U, 5U}) {
        const double once = alone.options[pipeline].filling;
        EXPECT_GT(once, 0.0);
        EXPECT_EQ(alone.options[pipeline].ahead, 0.0);
        EXPECT_NEAR(several.options[pipeline].filling + several.options[pipeline].ahead, once,
                    1e-9 * once);
        EXPECT_NEAR(several.options[pipeline].filling, once / several.rounds.size(), 1e-9 * once);
    }
}

/// Of a replica on all ranks: another one may not hold the longest sample at all.
TEST(ReplicaOptions, HoldTheLongestSampleBesideFewerAdaptersAtOnce) {
    Case test = tight_case(1);
    const auto options = [&] {
        const Plan base = plan_before_deployment(test.job, test.model, test.datasets, test.cluster);
        return replica_options(test.job, base, test.datasets, test.cluster);
    };
    const DeploymentOptions found = options();
    ASSERT_EQ(found.replicas.size(), 2U);
    EXPECT_TRUE(found.replicas[0].microbatch_tokens);
    EXPECT_FALSE(found.replicas[1].microbatch_tokens);
    EXPECT_LT(found.task.options[0].seconds.size(), found.task.samples.size());
    EXPECT_EQ(found.task.options[1].seconds.size(), found.task.samples.size());
    test.job.schedule.max_adapters = 1;
    ASSERT_EQ(options().replicas.size(), 1U);
    EXPECT_FALSE(options().replicas[0].microbatch_tokens);
}

/// Lanes sum over the link between hosts where one host does not hold them.
TEST(ReplicaOptions, CostMoreWhereTheirLanesAreOnTwoHosts) {
    Case test = skewed_case(4);
    const DeploymentOptions near = options_of(test);
    test.cluster.ranks_per_node = 2;
    const DeploymentOptions apart = options_of(test);
    ASSERT_EQ(apart.replicas.size(), near.replicas.size());
    for (std::size_t i = 0; i < near.replicas.size(); ++i) {
        const double times = apart.task.options[i].seconds[0] / near.task.options[i].seconds[0];
        if (near.replicas[i].tensor > 2) {
            EXPECT_GT(times, 1.5);
        } else {
            EXPECT_EQ(times, 1.0);
        }
        const bool alone = near.replicas[i].tensor * near.replicas[i].stages == 4;
        EXPECT_EQ(near.task.options[i].exchange, 0.0);
        EXPECT_EQ(apart.task.options[i].exchange > 0.0, !alone);
    }
}

TEST(ReplicaOptions, HoldWhatFitsIntoMemory) {
    const DeploymentOptions options = options_of(tight_case(4));
    ASSERT_EQ(options.replicas.front().tensor * options.replicas.front().stages, 1);
    ASSERT_TRUE(options.replicas.front().microbatch_tokens);
    EXPECT_LT(*options.replicas.front().microbatch_tokens, 200);
    const std::size_t buckets = options.task.samples.size();
    EXPECT_LT(options.task.options.front().seconds.size(), buckets);
    EXPECT_EQ(options.task.options.back().seconds.size(), buckets);
}

TEST(ReplicaOptions, TakeShorterSamplesWithoutRecomputation) {
    Case test = tight_case(4);
    test.job.parallel.recompute = Recompute::automatic;
    const DeploymentOptions options = options_of(test);
    const ReplicaJob& whole = options.replicas[0];
    const ReplicaJob& fast = options.replicas[1];
    EXPECT_EQ(std::pair(whole.tensor, whole.stages), std::pair(fast.tensor, fast.stages));
    EXPECT_FALSE(whole.microbatch_tokens);
    ASSERT_TRUE(fast.microbatch_tokens);
    EXPECT_LT(options.task.options[1].seconds[0], options.task.options[0].seconds[0]);
    // Dispatch counts on it: the plan must not come to recompute a layer of the fast one.
    EXPECT_EQ(whole.recompute, Recompute::layer);
    EXPECT_TRUE(whole.recomputes_least);
    EXPECT_EQ(fast.recompute, Recompute::none);
    EXPECT_EQ(*fast.microbatch_tokens % 8, 0) << "a step of what is above 128";
}

TEST(CompareDeployments, PredictsOthersBesideThePlansOwn) {
    const DeploymentComparison comparison = compared(skewed_case(4));
    ASSERT_GE(comparison.predictions.size(), 2U);
    EXPECT_EQ(std::ssize(comparison.found.options), 7);
    EXPECT_GT(comparison.found.search.options, 1);  // two lanes end sooner with a long sample
    EXPECT_EQ(comparison.predictions.front().deployment.front().stages, 4);
    for (const DeploymentPrediction& entry : comparison.predictions) {
        int ranks = 0;
        for (const ReplicaJob& replica : entry.deployment) {
            ranks += replica.count * replica.tensor * replica.stages;
        }
        EXPECT_EQ(ranks, 4);
        ASSERT_TRUE(entry.prediction);
        EXPECT_GT(entry.prediction->tokens_per_second(), 0.0);
    }
    const std::string text = describe(comparison);
    EXPECT_NE(text.find("[{tp: 1, pp: 4}], as it is"), std::string::npos) << text;
    EXPECT_NE(text.find("[{tp: 1, pp: 1, count: 4}]"), std::string::npos) << text;
    EXPECT_NE(text.find("7 ways to cut a replica"), std::string::npos) << text;
}

TEST(CompareDeployments, MixesReplicasWhereMemoryIsShort) {
    const DeploymentComparison comparison = compared(tight_case(4));
    ASSERT_EQ(comparison.predictions.size(), 4U);
    EXPECT_GT(comparison.found.search.options, 1);
    for (std::size_t i = 1; i < comparison.predictions.size(); ++i) {
        EXPECT_TRUE(comparison.predictions[i].prediction) << describe(comparison);
        const auto& deployment = comparison.predictions[i].deployment;
        EXPECT_FALSE(deployment.front().microbatch_tokens && deployment.size() == 1);
    }
    for (std::size_t i = 2; i < comparison.predictions.size(); ++i) {
        EXPECT_LE(comparison.predictions[i].prediction->tokens_per_second(),
                  comparison.predictions[i - 1].prediction->tokens_per_second());
    }
    EXPECT_NE(describe(comparison).find(", microbatch_tokens: "), std::string::npos)
        << describe(comparison);
}

TEST(CompareDeployments, SaysNothingOfOneRank) {
    EXPECT_EQ(compared(skewed_case(1)).predictions.size(), 1U);
    EXPECT_EQ(describe(compared(skewed_case(1))), "");
}

}  // namespace loratrain::plan_test

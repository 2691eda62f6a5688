#include "plan/deployments/find_deployments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "unit/plan/deployment_cases.h"

namespace loratrain::plan_test {

namespace {

FoundDeployments found_for(const Case& test) {
    return find_deployments(test.job, test.model, test.datasets, test.cluster, {4, 3});
}

void settle(Case& test, const Plan* former = nullptr) {
    settle_deployment(test.job, test.model, test.datasets, test.cluster, former);
}

int ranks_of(const std::vector<ReplicaJob>& deployment) {
    int ranks = 0;
    for (const ReplicaJob& replica : deployment) {
        ranks += replica.count * replica.tensor * replica.stages;
    }
    return ranks;
}

/// With `deployment: auto`.
Case automatic(Case test) {
    test.job.parallel.find_deployment = true;
    return test;
}

std::string problem_of(Case test) {
    try {
        settle(test);
    } catch (const InputError& error) {
        return error.problems().front().what;
    }
    return "";
}

}  // namespace

TEST(FindDeployments, TheFastestComeFirst) {
    const FoundDeployments found = found_for(tight_case(4));
    ASSERT_GE(found.fastest.size(), 2U);
    for (std::size_t i = 0; i < found.fastest.size(); ++i) {
        EXPECT_EQ(ranks_of(found.fastest[i].deployment), 4);
        ASSERT_TRUE(found.fastest[i].prediction);
        if (i == 0) continue;
        EXPECT_LE(found.fastest[i].prediction->tokens_per_second(),
                  found.fastest[i - 1].prediction->tokens_per_second());
    }
}

/// A pipeline cannot have such rows (Ability::tokens_on_stages).
TEST(FindDeployments, RowsOfTokensOfATiedHeadTakeReplicas) {
    Case test = uniform_case(2, 2, 40, 16, 4);
    test.model.tie_word_embeddings = true;
    test.job.adapters.front().trainable_token_indices = {1};
    const FoundDeployments found = found_for(test);
    ASSERT_FALSE(found.fastest.empty());
    for (const auto& one : found.fastest) {
        for (const ReplicaJob& replica : one.deployment) EXPECT_EQ(replica.stages, 1);
    }
}

/// The smallest that is hinted at is one that the job may have too.
TEST(FindDeployments, NoOptionIsRefusedBecauseOfRowsOfTokens) {
    Case test = skewed_case(4);
    test.model.tie_word_embeddings = true;
    const auto shapes_of = [&] {
        const Plan base = plan_before_deployment(test.job, test.model, test.datasets, test.cluster);
        std::set<std::pair<int, int>> shapes;
        for (const ReplicaJob& replica :
             replica_options(test.job, base, test.datasets, test.cluster).replicas) {
            shapes.emplace(replica.tensor, replica.stages);
        }
        return shapes;
    };
    const std::set<std::pair<int, int>> all = shapes_of();
    ASSERT_GT(all.size(), 3U);
    test.job.adapters.back().trainable_token_indices = {1};
    EXPECT_EQ(shapes_of(), (std::set<std::pair<int, int>>{{1, 1}, {2, 1}, {4, 1}}));
    test.model.tie_word_embeddings = false;
    EXPECT_EQ(shapes_of(), all);

    test = tight_case(4);
    const auto smallest = [&] {
        const Plan base = plan_before_deployment(test.job, test.model, test.datasets, test.cluster);
        return smallest_replica_for(test.job, base, test.datasets, test.cluster, 200);
    };
    test.model.tie_word_embeddings = true;
    test.job.adapters.back().trainable_token_indices = {1};
    ASSERT_TRUE(smallest());
    EXPECT_EQ(smallest()->replica.stages, 1);
}

TEST(FindDeployments, SaysWhatRowsOfTokensNeedWhereNoReplicaFits) {
    Case test = automatic(tight_case(4));
    test.cluster.bytes_per_rank = 4096;
    EXPECT_EQ(problem_of(test).find("need replicas of"), std::string::npos) << problem_of(test);
    test.job.adapters.back().trainable_token_indices = {1};
    EXPECT_EQ(problem_of(test).find("need replicas of"), std::string::npos) << problem_of(test);
    test.model.tie_word_embeddings = true;
    EXPECT_TRUE(problem_of(test).ends_with("; trainable_token_indices need replicas of pp: 1"))
        << problem_of(test);
}

/// What no run exceeds is no less than what runs are predicted to do.
TEST(FindDeployments, NoneIsFasterThanItsBound) {
    for (const Case& test : {tight_case(4), skewed_case(6), tight_case(6)}) {
        WorthPredicting worth{4, 6};
        const FoundDeployments all =
            find_deployments(test.job, test.model, test.datasets, test.cluster, worth);
        ASSERT_FALSE(all.fastest.empty());
        EXPECT_EQ(all.ruled_out, 0U);
        const double fastest = all.fastest.front().prediction->tokens_per_second();
        worth.fastest_alone = true;
        const FoundDeployments alone =
            find_deployments(test.job, test.model, test.datasets, test.cluster, worth);
        ASSERT_FALSE(alone.fastest.empty());
        EXPECT_EQ(alone.fastest.front().prediction->tokens_per_second(), fastest);
        worth.least_speed = fastest;
        EXPECT_FALSE(find_deployments(test.job, test.model, test.datasets, test.cluster, worth)
                         .fastest.empty());
        worth.least_speed = 100.0 * fastest;
        const FoundDeployments none =
            find_deployments(test.job, test.model, test.datasets, test.cluster, worth);
        EXPECT_TRUE(none.fastest.empty());
        EXPECT_GE(none.ruled_out, all.fastest.size());
    }
}

/// What uneven ones take is estimated worst: some other one is predicted beside them.
TEST(FindDeployments, OneOfReplicasThatAreAlikeIsPredicted) {
    for (const Case& test : {tight_case(4), skewed_case(6), tight_case(6), skewed_case(8)}) {
        const WorthPredicting worth{4, 2};
        const FoundDeployments found =
            find_deployments(test.job, test.model, test.datasets, test.cluster, worth);
        ASSERT_TRUE(std::ranges::any_of(found.search.solved, is_alike, &OptionCounts::replicas));
        EXPECT_TRUE(std::ranges::any_of(
            found.fastest, [](const auto& entry) { return entry.deployment.size() == 1; }));
    }
}

TEST(FindDeployments, OnlyWhereTheKeySaysAuto) {
    Case test = tight_case(4);
    settle(test);
    EXPECT_TRUE(test.job.parallel.deployment.empty());
    Case given = automatic(tight_case(4));
    settle(given);
    const FoundDeployments found = found_for(test);
    const Plan plan = given.plan();
    EXPECT_EQ(std::ssize(plan.memory), 4);
    EXPECT_EQ(ranks_of(given.job.parallel.deployment), 4);
    EXPECT_EQ(given.job.parallel.deployment.size(), found.fastest.front().deployment.size());
    EXPECT_EQ(given.job.parallel.deployment[0].tensor, found.fastest.front().deployment[0].tensor);
}

/// Ranks beyond the layers are no problem to replicas.
TEST(FindDeployments, AreFoundForMoreRanksThanLayers) {
    Case test = automatic(skewed_case(6));
    settle(test);
    EXPECT_EQ(ranks_of(test.job.parallel.deployment), 6);
    EXPECT_EQ(std::ssize(test.plan().memory), 6);
}

TEST(FindDeployments, ThatOfTheFormerRunIsKeptOnAsManyRanks) {
    Case former = tight_case(4);
    former.job.parallel.deployment = {{2, 1, 1, {}}, {1, 1, 2, 100}};
    const Plan plan = former.plan();
    Case test = automatic(tight_case(4));
    settle(test, &plan);
    ASSERT_EQ(test.job.parallel.deployment.size(), 2U);
    EXPECT_EQ(test.job.parallel.deployment[0].tensor, 2);
    EXPECT_EQ(test.job.parallel.deployment[0].microbatch_tokens, std::nullopt);
    EXPECT_EQ(test.job.parallel.deployment[1].count, 2);
    EXPECT_EQ(test.job.parallel.deployment[1].microbatch_tokens, 100);
    EXPECT_EQ(make_plan(test.job, test.model, test.datasets, test.cluster, &plan)
                  .replicas[0]
                  .microbatch_tokens,
              plan.replicas[0].microbatch_tokens);

    Case more = automatic(tight_case(6));
    settle(more, &plan);
    EXPECT_EQ(ranks_of(more.job.parallel.deployment), 6);

    Case longer = automatic(tight_case(4));  // than the former run's replicas take
    longer.datasets[0].train[1] = {201, 200};
    longer.cluster.bytes_per_rank = 0;
    settle(longer, &plan);
    EXPECT_EQ(ranks_of(longer.job.parallel.deployment), 4);
    EXPECT_GE(longer.plan().replicas[0].microbatch_tokens, 201);
}

TEST(FindDeployments, SayWhatNoneDoes) {
    Case test = automatic(tight_case(1));
    while (problem_of(test).empty())
        test.cluster.bytes_per_rank -= test.cluster.bytes_per_rank / 50;
    EXPECT_NE(problem_of(test).find("take the longest sample, of 200 tokens"), std::string::npos)
        << problem_of(test);
    test.cluster.bytes_per_rank = 1000;
    EXPECT_NE(problem_of(test).find("no replica on 1 rank of 1000 B that holds the model"),
              std::string::npos)
        << problem_of(test);
    test.datasets[0].train.clear();
    EXPECT_NE(problem_of(test).find("has no samples"), std::string::npos) << problem_of(test);
}

}  // namespace loratrain::plan_test

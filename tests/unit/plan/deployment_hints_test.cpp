#include <gtest/gtest.h>

#include <algorithm>

#include "config/model_presets.h"
#include "plan/deployments/compare_deployments.h"
#include "plan/text/describe_prediction.h"
#include "unit/plan/deployment_cases.h"

namespace loratrain::plan_test {

namespace {

/// Where one rank has too little memory for the longest sample even beside one adapter.
Case tighter_case() {
    Case test = tight_case(4);
    test.job.parallel.deployment = {{1, 1, 4, {}}};
    while (problems_of(test).empty())
        test.cluster.bytes_per_rank -= test.cluster.bytes_per_rank / 50;
    return test;
}

}  // namespace

TEST(DeploymentHints, NameAReplicaThatWouldTakeTheLongestSample) {
    const std::string problems = problems_of(tighter_case());
    EXPECT_NE(problems.find("3 samples have more tokens than the largest replica takes, "),
              std::string::npos)
        << problems;
    EXPECT_NE(problems.find("{tp: 2, pp: 1} would take "), std::string::npos) << problems;
    EXPECT_NE(problems.find(", 200 are needed"), std::string::npos) << problems;
}

TEST(DeploymentHints, UniformDispatchWantsReplicasThatAllTakeTheLongest) {
    Case test = tighter_case();
    test.job.parallel.deployment = {{2, 1, 1, {}}, {1, 1, 2, {}}};
    EXPECT_EQ(problems_of(test), "");
    test.job.parallel.dispatch = DispatchRule::uniform;
    const std::string problems = problems_of(test);
    EXPECT_NE(problems.find("than the smallest replica takes, "), std::string::npos) << problems;
    EXPECT_NE(problems.find("with parallel.dispatch: uniform every replica must take 200; use "
                            "dispatch: balanced"),
              std::string::npos)
        << problems;
}

TEST(DeploymentHints, BaselinesAreSimulated) {
    const Case test = tight_case(4);
    const FoundDeployments found =
        find_deployments(test.job, test.model, test.datasets, test.cluster, {4});
    const std::vector<Baseline> rows =
        compare_baselines(test.job, test.model, test.datasets, test.cluster, found, 3);
    ASSERT_EQ(rows.size(), 5U);
    EXPECT_EQ(rows[0].name, "Task-Fused");
    ASSERT_EQ(rows[0].deployment.size(), 1U);
    EXPECT_EQ(rows[4].name, "balanced");
    for (const Baseline& row : rows) EXPECT_GT(row.rank_seconds, 0.0) << row.name;
    EXPECT_LE(rows[4].rank_seconds, rows[3].rank_seconds);  // than length-based
    EXPECT_LE(rows[4].rank_seconds, rows[0].rank_seconds);  // than the same dealt evenly
    EXPECT_LE(rows[4].rank_seconds, rows[2].rank_seconds);  // than one adapter after another
    EXPECT_TRUE(same_cuts(rows[4].deployment, found.fastest.front().deployment));
    EXPECT_TRUE(rows[1].deployment.empty());
    EXPECT_GT(rows[1].rank_seconds, rows[4].rank_seconds);  // one after the other
    Job own = deployed(test.job, rows[4].deployment);
    EXPECT_DOUBLE_EQ(round_rank_seconds(own, test.model, test.datasets, test.cluster, 3),
                     rows[4].rank_seconds);
    const std::string text = describe(rows);
    EXPECT_NE(text.find("one of its own for each adapter"), std::string::npos) << text;
    EXPECT_NE(text.find("100.0%"), std::string::npos) << text;
}

/// Wherever a replica fits of which some make up all ranks, none is said not to.
TEST(DeploymentHints, TaskFusedFitsWhereAReplicaOfAllRanksDoes) {
    for (const int ranks : {2, 3, 4, 6}) {
        const Case test = tight_case(ranks);
        const FoundDeployments found =
            find_deployments(test.job, test.model, test.datasets, test.cluster, {4});
        const bool one_fits = std::ranges::any_of(found.options, [&](const ReplicaJob& option) {
            return ranks % (option.tensor * option.stages) == 0 && !option.microbatch_tokens;
        });
        const std::vector<Baseline> rows =
            compare_baselines(test.job, test.model, test.datasets, test.cluster, found, 4);
        EXPECT_EQ(rows.front().name, "Task-Fused");
        EXPECT_EQ(rows.front().rank_seconds > 0.0, one_fits) << ranks;
    }
}

/// One measure: what was predicted of the deployment that is taken is a row too.
TEST(DeploymentHints, BalancedIsNoSlowerThanWhatIsTaken) {
    for (const int ranks : {4, 6}) {
        const Case test = tight_case(ranks);
        const FoundDeployments found =
            find_deployments(test.job, test.model, test.datasets, test.cluster, {4});
        const std::vector<Baseline> rows =
            compare_baselines(test.job, test.model, test.datasets, test.cluster, found, 4);
        std::int32_t steps = 0;
        for (const AdapterPlan& adapter : found.fastest.front().planned.plan.adapters) {
            steps = std::max(steps, adapter.total_steps);
        }
        const double taken = ranks * found.fastest.front().prediction->seconds / steps;
        EXPECT_EQ(rows.back().name, "balanced");
        EXPECT_LE(rows.back().rank_seconds, taken);
        if (same_cuts(rows.back().deployment, found.fastest.front().deployment)) {
            EXPECT_DOUBLE_EQ(rows.back().rank_seconds, taken);
        }
    }
}

/// Equal adapters on equal replicas: dealing by time is no slower than in turn.
TEST(DeploymentHints, BalancedIsNoSlowerThanTaskFused) {
    Case test = uniform_case(16, 16, 64, 500, 8);
    test.model = *model_preset("llama-3.1-8b");
    for (std::size_t i = 0; i < 64; ++i) {
        test.datasets[0].train[i].tokens += static_cast<std::int32_t>(i * 37 % 64) * 20;
    }
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h100";
    test.cluster.bytes_per_rank = std::uint64_t{76} << 30U;
    test.job.parallel.microbatch_tokens.reset();
    const auto seconds = [&](DispatchRule rule) {
        Job job = deployed(test.job, {{1, 4, 4}});
        job.parallel.dispatch = rule;
        return round_rank_seconds(job, test.model, test.datasets, test.cluster, 8);
    };
    EXPECT_LE(seconds(DispatchRule::balanced), seconds(DispatchRule::uniform));
}

}  // namespace loratrain::plan_test

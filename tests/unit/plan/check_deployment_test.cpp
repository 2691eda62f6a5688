#include "plan/deploy/check_deployment.h"

#include <gtest/gtest.h>

#include "support/small_model.h"

namespace loratrain::test {
namespace {

std::vector<Problem> problems_with(const std::vector<ReplicaJob>& deployment, Optim optim) {
    Job job;
    job.path = "job.yaml";
    job.adapters.emplace_back();
    job.adapters.back().optim = optim;
    job.parallel.deployment = deployment;
    Cluster cluster;
    for (const ReplicaJob& replica : deployment) {
        cluster.ranks += replica.tensor * replica.stages * replica.count;
    }
    cluster.ranks -= 1;
    Problems problems;
    check_deployment(job, small_model(), cluster, problems);
    return problems.list();
}

/// Lanes make codes of what they have, which replicas must have alike.
TEST(CheckDeployment, CodedMomentsNeedEqualLanes) {
    const std::vector<ReplicaJob> unlike{{2, 1, 1}, {1, 1, 1}};
    const auto problems = problems_with(unlike, Optim::adamw_8bit);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].where, "job.yaml: parallel.deployment.tp");
    EXPECT_NE(problems[0].what.find("optim: adamw_8bit"), std::string::npos);
    EXPECT_TRUE(problems_with(unlike, Optim::adamw_torch).empty());
    EXPECT_TRUE(problems_with({{2, 1, 1}, {2, 1, 1}}, Optim::adamw_8bit).empty());
}

}  // namespace
}  // namespace loratrain::test

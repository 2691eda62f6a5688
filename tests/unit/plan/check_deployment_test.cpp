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

/// A number that no rank can have is not taken for a smaller one.
TEST(CheckLayerCounts, RefusesMoreLayersThanARankCanHave) {
    const ModelSpec model = small_model();
    Job job;
    job.path = "job.yaml";
    const auto places = [&] {
        Problems problems;
        check_layer_counts(job, model, problems);
        std::vector<std::string> found;
        for (const Problem& problem : problems.list()) found.push_back(problem.where);
        return found;
    };
    EXPECT_TRUE(places().empty());
    const auto set_all = [&](int layers) {
        job.parallel.recomputed_layers = layers;
        job.model.residency.kind = Residency::Kind::some;
        job.model.residency.layers = layers;
    };
    const std::vector<std::string> all{"job.yaml: parallel.recompute", "job.yaml: model.residency"};
    set_all(model.layers);
    EXPECT_TRUE(places().empty());
    set_all(model.layers + 1);
    EXPECT_EQ(places(), all);
    job.parallel.pipeline_stages = 2;
    set_all(model.layers);
    EXPECT_EQ(places(), all);
    set_all(model.layers - 1);
    EXPECT_TRUE(places().empty());
    job.parallel.pipeline_stages.reset();
    job.parallel.deployment = {{1, 2, 1}, {1, 1, 1}};
    job.parallel.deployment[0].recomputed_layers = model.layers;
    EXPECT_EQ(places(), std::vector<std::string>{"job.yaml: parallel.deployment[0].recompute"});
}

}  // namespace
}  // namespace loratrain::test

#include "plan/deployments/usual_way.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/model_presets.h"
#include "plan/deployments/worker_shape.h"
#include "plan/text/plan_text.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Adapters of llama-3.1-8b on four A40 of one host, which each hold it; nothing is said of how.
Case open_case(int adapters) {
    Case test = uniform_case(adapters, 4, 64, 512, 16);
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "a40";
    test.cluster.bytes_per_rank = std::uint64_t{42} << 30U;
    test.job.parallel.microbatch_tokens.reset();
    test.job.parallel.deployment_open = test.job.parallel.assignment_open = true;
    return test;
}

UsualWay way_of(const Case& test) {
    return usual_way(test.job, test.model, test.datasets, test.cluster);
}

double speed(const Case& test, const std::vector<ReplicaJob>& deployment) {
    return predict_deployment(test.job, deployment, test.model, test.datasets, test.cluster)
        .prediction->tokens_per_second();
}

/// One pipeline's speed as one.
double gain_of(const Case& test, const std::vector<ReplicaJob>& deployment) {
    return speed(test, deployment) / speed(test, {});
}

/// The two ranks on hosts of their own, whose link makes the deployment gain more than other_gain
/// and less than usual_gain: the faster it is, the more the deployment gains. `slow`, `fast`: GB/s
/// with which it gains less and more.
Case gaining_little(Case test, const std::vector<ReplicaJob>& deployment, double slow,
                    double fast) {
    test.cluster.ranks_per_node = 1;
    for (int step = 0; step < 24; ++step) {
        const double gigabytes = std::sqrt(slow * fast);
        test.job.cluster.between_hosts = {gigabytes, 5.0};
        const double gain = gain_of(test, deployment);
        if (gain > 1.003 && gain < 1.0 + 0.8 * usual_gain) return test;
        (gain < 1.01 ? slow : fast) = gigabytes;
    }
    ADD_FAILURE() << "no link makes it gain so little";
    return test;
}

/// One adapter of llama-3-70b on two H200, neither of which holds it alone.
Case divided_case() {
    Case test = open_case(1);
    test.model = *model_preset("llama-3-70b");
    test.cluster.device = "h200";
    test.cluster.bytes_per_rank = std::uint64_t{130} << 30U;
    test.cluster.ranks = 2;
    return test;
}

}  // namespace

TEST(UsualWay, IsReplicasWhereTheyGain) {
    Case test = open_case(1);
    const UsualWay way = way_of(test);
    ASSERT_EQ(way.kind, UsualWay::Kind::replicas);
    EXPECT_GE(speed(test, way.deployment), (1.0 + usual_gain) * speed(test, {}));
    EXPECT_NE(way.text.find("x as fast as one pipeline by simulation"), std::string::npos);
    const Job job = settled(test.job, way);
    EXPECT_TRUE(job.parallel.find_deployment);
    EXPECT_FALSE(job.parallel.deployment_open);
    EXPECT_EQ(job.parallel.settled, way.text);
}

TEST(UsualWay, IsWorkersWhereTheseGainMore) {
    Case test = open_case(8);
    for (AdapterJob& adapter : test.job.adapters) adapter.global_batch_size = 1;
    const UsualWay way = way_of(test);
    ASSERT_EQ(way.kind, UsualWay::Kind::workers);
    EXPECT_EQ(settled(test.job, way).parallel.assignment, Assignment::each);
    test.job.parallel.assignment_open = false;
    EXPECT_NE(way_of(test).kind, UsualWay::Kind::workers);
    test.job.parallel.assignment_open = true;
    test.job.schedule.max_adapters = 2;
    EXPECT_NE(way_of(test).kind, UsualWay::Kind::workers);
}

/// Between workers nothing passes, so they are taken for less than replicas.
TEST(UsualWay, IsWorkersWhereTheseGainLittle) {
    Case test = open_case(4);
    test.cluster.ranks = 2;
    test.datasets[0].train = equal_samples(256, 512);
    const auto workers = fastest_workers(test.job, test.model, test.datasets, test.cluster);
    ASSERT_TRUE(workers);
    const auto pipeline =
        predict_deployment(test.job, {}, test.model, test.datasets, test.cluster).prediction;
    ASSERT_TRUE(pipeline);
    const double gain = pipeline->seconds / workers->seconds;
    ASSERT_GT(gain, 1.0 + other_gain);
    ASSERT_LT(gain, 1.0 + usual_gain);
    EXPECT_EQ(way_of(test).kind, UsualWay::Kind::workers) << way_of(test).text;
}

/// What nothing is summed over replicas for is taken for less.
TEST(UsualWay, IsLanesOfAllRanksWhereTheseGainLittle) {
    const Case test = gaining_little(divided_case(), {{2, 1, 1, {}}}, 50.0, 80.0);
    const UsualWay way = way_of(test);
    ASSERT_EQ(way.kind, UsualWay::Kind::replicas) << way.text;
    ASSERT_EQ(way.deployment.size(), 1U);
    EXPECT_EQ(way.deployment.front().count, 1);
    EXPECT_GT(gain_of(test, way.deployment), 1.0 + other_gain);
    EXPECT_LT(gain_of(test, way.deployment), 1.0 + usual_gain);
}

TEST(UsualWay, IsOnePipelineWhereReplicasGainLittle) {
    Case test = open_case(1);
    test.cluster.ranks = 2;
    test = gaining_little(test, {{1, 1, 2, {}}}, 0.01, 100.0);
    const UsualWay way = way_of(test);
    EXPECT_EQ(way.kind, UsualWay::Kind::pipeline) << way.text;
    ASSERT_TRUE(way.found);
    ASSERT_FALSE(way.found->fastest.empty()) << "replicas that gain little were predicted";
    EXPECT_EQ(way.found->fastest.front().deployment.front().count, 2);
}

/// On more ranks than the others are predicted first.
TEST(UsualWay, IsTheSameOnManyRanksAsOnePipelineAndReplicasSay) {
    Case test = open_case(2);
    test.cluster.ranks = 10;
    test.cluster.ranks_per_node = 8;
    const UsualWay way = way_of(test);
    ASSERT_EQ(way.kind, UsualWay::Kind::replicas) << way.text;
    EXPECT_GE(gain_of(test, way.deployment), 1.0 + usual_gain);
    ASSERT_TRUE(way.planned);
    const Plan plan = make_plan(settled(test.job, way), test.model, test.datasets, test.cluster);
    EXPECT_EQ(to_text(way.planned->plan), to_text(plan));
    ASSERT_TRUE(way.prediction);
    EXPECT_EQ(
        way.prediction->seconds,
        predict(settled(test.job, way), plan, test.datasets, WorthPredicting{}.rounds).seconds);
    test.cluster.ranks = 34;  // one pipeline does not fit
    EXPECT_EQ(way_of(test).kind, UsualWay::Kind::replicas);
}

/// By how much a pipeline is slower that was not searched to the end, nobody knows.
TEST(UsualWay, NamesNoGainOverAPipelineThatWasGivenUp) {
    Case test = open_case(1);
    test.cluster.ranks = 16;
    test.cluster.ranks_per_node = 8;
    const UsualWay way = way_of(test);
    ASSERT_EQ(way.kind, UsualWay::Kind::replicas) << way.text;
    const DeploymentPrediction pipeline =
        predict_deployment(test.job, {}, test.model, test.datasets, test.cluster,
                           WorthPredicting{}.rounds, speed(test, way.deployment));
    ASSERT_TRUE(pipeline.planned.report.falls_behind);
    EXPECT_FALSE(pipeline.prediction) << "what falls behind has no prediction";
    EXPECT_NE(way.text.find("by simulation, which one pipeline does not come near"),
              std::string::npos)
        << way.text;
    EXPECT_EQ(way.text.find("x as fast"), std::string::npos) << way.text;
}

TEST(UsualWay, IsOnePipelineWhereNothingIsKnownOrOpen) {
    const auto is_pipeline = [](const Case& test) {
        const UsualWay way = way_of(test);
        return way.kind == UsualWay::Kind::pipeline && way.deployment.empty();
    };
    Case given = open_case(1);
    given.job.parallel.deployment_open = false;
    EXPECT_TRUE(is_pipeline(given));
    Case unknown = open_case(1);
    unknown.cluster.device = "RTX 5090";
    EXPECT_TRUE(is_pipeline(unknown));
    Case processors = open_case(1);
    processors.cluster.backend = BackendKind::cpu;
    processors.cluster.device = "cpu";
    EXPECT_TRUE(is_pipeline(processors));
    Case other = open_case(1);
    other.job.schedule.policy = SchedulePolicy::mlora;
    EXPECT_TRUE(is_pipeline(other));
    Case one_rank = open_case(1);
    one_rank.cluster.ranks = 1;
    EXPECT_TRUE(is_pipeline(one_rank));
    const Job job = settled(one_rank.job, way_of(one_rank));
    EXPECT_FALSE(job.parallel.find_deployment);
    EXPECT_FALSE(job.parallel.by_workers());
    EXPECT_EQ(job.parallel.settled, "");
}

/// A base that one pipeline of so many ranks cannot have: it has fewer layers.
TEST(UsualWay, IsReplicasWhereOnePipelineDoesNotFit) {
    Case test = open_case(1);
    test.cluster.ranks = 34;
    const UsualWay way = way_of(test);
    EXPECT_EQ(way.kind, UsualWay::Kind::replicas);
    EXPECT_NE(way.text.find("one pipeline of all ranks does not fit"), std::string::npos);
}

/// A run need not plan again.
TEST(UsualWay, HasThePlanThatTheRunWouldMake) {
    Case pipeline = open_case(1);
    pipeline.cluster.ranks = 2;
    for (const Case& test : {open_case(1), pipeline}) {
        const UsualWay way = way_of(test);
        ASSERT_TRUE(way.planned);
        const Plan plan =
            make_plan(settled(test.job, way), test.model, test.datasets, test.cluster);
        EXPECT_EQ(to_text(way.planned->plan), to_text(plan));
    }
}

/// On any device: what replicas there are is found later.
TEST(UsualWay, IsReplicasOfMoreRanksThanLayers) {
    Case test = open_case(1);
    test.cluster.backend = BackendKind::cpu;
    test.cluster.device = "cpu";
    test.cluster.ranks = static_cast<int>(test.model.layers);
    EXPECT_EQ(way_of(test).kind, UsualWay::Kind::pipeline);
    ++test.cluster.ranks;
    EXPECT_EQ(way_of(test).kind, UsualWay::Kind::replicas);
    EXPECT_TRUE(settled(test.job, way_of(test)).parallel.find_deployment);
    test.job.parallel.deployment_open = false;  // deployment: pipeline
    EXPECT_EQ(way_of(test).kind, UsualWay::Kind::pipeline);
}

/// Of all ranks, without lanes and without sizes of its own.
TEST(FindDeployments, LeaveOnePipelineOutWhereItIsPredictedAlready) {
    const auto is_pipeline = [](const DeploymentPrediction& entry) {
        const ReplicaJob& first = entry.deployment.front();
        return entry.deployment.size() == 1 && first.stages == 2 && !first.microbatch_tokens;
    };
    Case test = divided_case();
    const auto found = [&](bool one_pipeline) {
        WorthPredicting worth;
        worth.one_pipeline = one_pipeline;
        return find_deployments(test.job, test.model, test.datasets, test.cluster, worth).fastest;
    };
    const std::vector<DeploymentPrediction> all = found(true);
    const std::vector<DeploymentPrediction> others = found(false);
    EXPECT_EQ(std::ranges::count_if(all, is_pipeline), 1);
    EXPECT_EQ(std::ranges::count_if(others, is_pipeline), 0);
    EXPECT_EQ(others.size() + 1, all.size());
}

/// LobRA's rule that the lanes of a stage are on one host: it comes of what messages take.
TEST(FindDeployments, KeepLanesOnOneHostForItsLinks) {
    Case test = open_case(1);
    test.cluster.device = "h200";
    test.cluster.bytes_per_rank = std::uint64_t{130} << 30U;
    test.cluster.ranks = 2;
    test.datasets[0].train.assign(8, {8192, 8191});
    test.job.datasets[0].max_seq_len = 8192;
    test.job.adapters[0].global_batch_size = 1;
    const auto lanes = [&] {
        return find_deployments(test.job, test.model, test.datasets, test.cluster)
            .fastest.front()
            .deployment.front()
            .tensor;
    };
    EXPECT_EQ(lanes(), 2);
    test.cluster.ranks_per_node = 1;
    test.job.cluster.between_hosts = {400.0, 5.0};
    EXPECT_EQ(lanes(), 2);
    test.job.cluster.between_hosts = {10.0, 5.0};
    EXPECT_EQ(lanes(), 1);
}

/// Eight GPUs of one to eight hosts: ever more messages go between them.
TEST(FindDeployments, MoreHostsAreSlower) {
    Case test = open_case(4);
    test.cluster.device = "h100";
    test.cluster.bytes_per_rank = std::uint64_t{76} << 30U;
    test.cluster.ranks = 8;
    double lanes = 1e9;
    double pipeline = 1e9;
    for (const int hosts : {1, 2, 8}) {
        test.cluster.ranks_per_node = 8 / hosts;
        const double now = speed(test, {{8, 1, 1}});
        EXPECT_LT(now, (hosts == 2 ? 0.5 : 1.0) * lanes) << hosts;
        lanes = now;
        const double of_pipeline = speed(test, {});
        EXPECT_LT(of_pipeline, pipeline) << hosts;
        pipeline = of_pipeline;
    }
}

}  // namespace loratrain::plan_test

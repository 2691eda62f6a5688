#include "plan/deployments/worker_shape.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/model_presets.h"
#include "plan/deploy/layout_player.h"
#include "plan/predict/predict.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Adapters of batches of `batch` samples of llama-3.1-8b on two A40 of one host.
Case gpu_case(int adapters, int batch) {
    Case test = uniform_case(adapters, 2, 64, 300, batch);
    for (std::size_t i = 0; i < 64; ++i) {
        test.datasets[0].train[i].tokens += static_cast<std::int32_t>(i * 37 % 64) * 20;
    }
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "a40";
    test.cluster.bytes_per_rank = std::uint64_t{42} << 30U;
    test.job.parallel.microbatch_tokens.reset();
    return test;
}

Plan plan_of_worker(const Case& test, const WorkerShape& shape) {
    Cluster cluster = test.cluster;
    cluster.ranks = shape.replica.tensor * shape.replica.stages;
    return make_plan(job_of_worker(test.job, shape), test.model, test.datasets, cluster);
}

double seconds_of(const Case& test, const WorkerShape& shape) {
    const Plan plan = plan_of_worker(test, shape);
    const Job job = job_of_worker(test.job, shape);
    std::vector<std::int32_t> steps;
    for (const AdapterPlan& adapter : plan.adapters) steps.push_back(adapter.total_steps);
    const WorkerQueues queues =
        queue_for_workers(job, plan, test.datasets, steps, shape.replica.count);
    return workers_seconds(job, plan, test.datasets, queues);
}

std::optional<WorkersPrediction> fastest_of(const Case& test, std::optional<double> beside = {}) {
    return fastest_workers(test.job, test.model, test.datasets, test.cluster, beside);
}

}  // namespace

TEST(WorkersSeconds, OfOneWorkerAreThoseOfItsPipeline) {
    const Case test = gpu_case(3, 4);
    const WorkerShape shape{{1, 2, 1, 2048}, Recompute::none};
    const Plan plan = plan_of_worker(test, shape);
    const double pipeline = predict(test.job, plan, test.datasets, rounds_predicted).seconds;
    EXPECT_NEAR(seconds_of(test, shape), pipeline, 1e-9 * pipeline);
}

/// Each takes what a job of its queue alone takes in the same plan; the last one counts.
TEST(WorkersSeconds, AreThoseOfTheSlowestWorker) {
    Case test = gpu_case(3, 4);
    test.job.adapters[2].max_steps = 5;
    const Plan plan = plan_of_worker(test, {{1, 1, 2, 2048}, Recompute::none});
    const auto seconds = [&](const WorkerQueues& queues) {
        return workers_seconds(test.job, plan, test.datasets, queues);
    };
    const std::vector<AdapterId> first{AdapterId{0}, AdapterId{1}};
    const std::vector<AdapterId> second{AdapterId{2}};
    const double both =
        predict_some(test.job, plan, test.datasets, rounds_predicted, first).seconds;
    const double third =
        predict_some(test.job, plan, test.datasets, rounds_predicted, second).seconds;
    ASSERT_GT(both, third);
    EXPECT_EQ(seconds({{first, second}, {}, {2.0, 1.0}, 0.0}), both);
    EXPECT_EQ(seconds({{second, first}, {}, {1.0, 2.0}, 0.0}), both);
    EXPECT_EQ(seconds({{second, {}}, {}, {1.0, 0.0}, 0.0}), third);
    EXPECT_EQ(seconds({{{}, {}}, {first, second}, {}, 7.0}), 7.0) << "packed jobs";
}

TEST(PredictSome, IsWhatAJobOfTheseAdaptersTakes) {
    Case test = gpu_case(3, 4);
    const Plan plan = plan_of_worker(test, {{1, 1, 2, 2048}, Recompute::none});
    const Prediction one =
        predict_some(test.job, plan, test.datasets, rounds_predicted, std::vector{AdapterId{1}});
    const Prediction all = predict(test.job, plan, test.datasets, rounds_predicted);
    EXPECT_NEAR(static_cast<double>(one.tokens), static_cast<double>(all.tokens) / 3.0, 1.0);
    Case alone = test;
    alone.job.adapters.resize(1);
    const Prediction its =
        predict(alone.job, plan_of_worker(alone, {{1, 1, 2, 2048}, Recompute::none}),
                alone.datasets, rounds_predicted);
    EXPECT_NEAR(one.seconds, its.seconds, 0.01 * its.seconds);
}

/// No size of some by hand is faster.
TEST(FastestWorkers, HaveTheMicrobatchesOfTheirQueues) {
    for (const int batch : {2, 16}) {
        const Case test = gpu_case(2, batch);
        const auto found = fastest_of(test, 1e9);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->shape.replica.count, 2);
        EXPECT_NEAR(seconds_of(test, found->shape), found->seconds, 1e-9 * found->seconds);
        for (const std::int64_t size : {1792, 2816, 4096, 6144, 8192}) {
            WorkerShape by_hand = found->shape;
            by_hand.replica.microbatch_tokens = size;
            by_hand.recompute = Recompute::automatic;
            EXPECT_LE(found->seconds, 1.003 * seconds_of(test, by_hand)) << batch << ", " << size;
        }
    }
}

TEST(FastestWorkers, AreSeveralBesideAPipeline) {
    Case test = gpu_case(2, 4);
    test.cluster.ranks = 1;
    EXPECT_FALSE(fastest_of(test, 1e9));
    ASSERT_TRUE(fastest_of(test));
    EXPECT_EQ(fastest_of(test)->shape.replica.count, 1);
    test.cluster.bytes_per_rank = std::uint64_t{1} << 28U;
    EXPECT_FALSE(fastest_of(test, 1e9)) << "no rank holds the base";
    EXPECT_THROW(fastest_of(test), InputError);
}

TEST(ShapeOfWorkers, RecomputesAsTheDeploymentSays) {
    Case test = gpu_case(2, 4);
    test.job.parallel.assignment = Assignment::each;
    test.job.parallel.deployment = {{1, 1, 2, 2048}};
    const auto shape = [&] {
        return shape_of_workers(test.job, test.model, test.datasets, test.cluster);
    };
    EXPECT_EQ(shape().recompute, Recompute::none);
    test.job.parallel.deployment.front().recompute = Recompute::layer;
    EXPECT_EQ(shape().recompute, Recompute::layer);
    EXPECT_EQ(job_of_worker(test.job, shape()).parallel.recompute, Recompute::layer);
    test.job.parallel.deployment.front().count = 3;
    EXPECT_THROW(shape(), InputError);
}

}  // namespace loratrain::plan_test

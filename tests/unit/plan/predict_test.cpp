#include "plan/predict/predict.h"
#include "plan/cost/built_in_costs.h"
#include "plan/deployments/compare_deployments.h"

#include <gtest/gtest.h>

#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"
#include "plan/deployments/idle_advice.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/text/describe_prediction.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Every layer takes three seconds for forward and backward, all else is free.
Case timed_case(int adapters, int ranks, std::size_t samples, int batch) {
    Case test = uniform_case(adapters, ranks, samples, 10, batch);
    test.job.parallel.microbatch_tokens = 10;
    CostModel costs;
    costs.layer_forward.fixed = 1.0;
    costs.layer_backward.fixed = 2.0;
    costs.source = "made up";
    test.cluster.costs = costs;
    return test;
}

double whole_makespan(const Case& test, const Plan& plan) {
    Simulator simulator(test.job, only_replica(plan), plan.costs);
    simulator.add(plan_window(test.job, plan, test.datasets, fresh(plan), 100000));
    return simulator.timeline().makespan();
}

}  // namespace

/// A prediction is given up once what is left cannot make it fast enough.
TEST(Predict, EndsWhereTheLeastSpeedIsOutOfReach) {
    const Case test = uniform_case(4, 2, 64, 64, 4);
    const Plan plan = test.plan();
    const double speed = predict(test.job, plan, test.datasets, 4).tokens_per_second();
    const auto within = [&](double least, double most) {
        return predict_within(test.job, plan, test.datasets, 4, {least, most});
    };
    ASSERT_TRUE(within(0.99 * speed, 2.0 * speed));
    EXPECT_EQ(within(0.99 * speed, 2.0 * speed)->tokens_per_second(), speed);
    EXPECT_TRUE(within(0.0, speed));
    EXPECT_FALSE(within(1.01 * speed, 1.01 * speed));
    EXPECT_FALSE(within(1.01 * speed, 100.0 * speed));
}

/// By their first rounds; what is packed of these serves again.
TEST(Predict, EndsAtOnceWhereReplicasAreMuchTooSlow) {
    Case test = uniform_case(4, 2, 512, 64, 32);
    test.job.parallel.deployment = {{1, 1, 2, {}}};
    const Plan plan = test.plan();
    const Prediction whole = predict(test.job, plan, test.datasets, 16);
    const double speed = whole.tokens_per_second();
    const auto within = [&](double least) {
        return predict_within(test.job, plan, test.datasets, 16, {least, 100.0 * speed});
    };
    ASSERT_TRUE(within(0.9 * speed));
    EXPECT_EQ(within(0.9 * speed)->tokens_per_second(), speed);
    EXPECT_EQ(within(0.9 * speed)->fillings.blocks, whole.fillings.blocks);
    EXPECT_FALSE(within(1.2 * speed));
}

TEST(Predict, OneRankTakesTheSumOfItsMicrobatches) {
    const Case test = timed_case(2, 1, 40, 4);
    const Plan plan = test.plan();
    EXPECT_EQ(plan.costs.source, "made up");
    const Prediction prediction = predict(test.job, plan, test.datasets, 3);
    EXPECT_EQ(prediction.rounds, 10);
    EXPECT_EQ(prediction.rounds_played, 4);  // 3 that repeat three times, and the last
    EXPECT_EQ(prediction.tokens, 800);
    EXPECT_DOUBLE_EQ(prediction.seconds, 80 * 3.0);
    EXPECT_DOUBLE_EQ(prediction.tokens_per_second(), 10.0 / 3.0);
    EXPECT_DOUBLE_EQ(prediction.mean_idle_share(), 0.0);
    EXPECT_DOUBLE_EQ(prediction.start.makespan(), 72.0);
}

TEST(Predict, AShortJobIsSimulatedWhole) {
    const Case test = timed_case(3, 2, 12, 4);
    const Plan plan = test.plan();
    const Prediction prediction = predict(test.job, plan, test.datasets, 8);
    EXPECT_EQ(prediction.rounds_played, prediction.rounds);
    EXPECT_DOUBLE_EQ(prediction.seconds, whole_makespan(test, plan));
    EXPECT_DOUBLE_EQ(prediction.idle_share[0], prediction.start.idle_share(0));
}

TEST(Predict, PaddingTakesTimeAndIsNoToken) {
    Case test = timed_case(1, 1, 40, 40);
    for (std::size_t i = 0; i < 40; ++i) {
        test.datasets[0].train[i].tokens = static_cast<std::int32_t>(i + 1);
    }
    test.job.parallel.microbatch_tokens = 40;
    test.job.schedule.packing = Packing::bucketed;
    test.cluster.costs->layer_forward.per_token = 0.1;
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    ASSERT_EQ(window.batches.size(), 1U);
    EXPECT_EQ(window.batches[0].tokens, 820);
    EXPECT_GT(window.batches[0].padding, 0);
    const Prediction prediction = predict(test.job, plan, test.datasets, 8);
    EXPECT_EQ(prediction.tokens, 820);
    EXPECT_DOUBLE_EQ(prediction.seconds, whole_makespan(test, plan));
}

TEST(Predict, LongJobsAreExtrapolatedWell) {
    Case test = timed_case(4, 3, 64, 4);
    test.job.adapters[0].num_train_epochs = 5.0;
    test.job.adapters[1].num_train_epochs = 0.5;
    test.job.adapters[2].max_steps = 37;
    const Plan plan = test.plan();
    const Prediction prediction = predict(test.job, plan, test.datasets, 8);
    EXPECT_EQ(prediction.rounds, 80);
    EXPECT_LT(prediction.rounds_played, 50);
    EXPECT_EQ(prediction.tokens, 10 * (5 * 64 + 32 + 37 * 4 + 64));
    const double whole = whole_makespan(test, plan);
    EXPECT_NEAR(prediction.seconds, whole, 0.03 * whole);
}

/// A block that holds all rounds played is not packed as its parts would be, from whose times jobs
/// came out up to 9% too fast or too slow. Samples of two blocks are not quite those of all.
TEST(Predict, LongBlocksAreExtrapolatedWell) {
    for (const std::int64_t capacity : {300, 450, 500, 600, 700}) {
        Case test = timed_case(4, 2, 512, 4);
        for (std::size_t i = 0; i < 512; ++i) {
            test.datasets[0].train[i].tokens = static_cast<std::int32_t>(10 + i * 37 % 90);
        }
        test.job.parallel.microbatch_tokens = capacity;
        const Plan plan = test.plan();
        EXPECT_GT(rounds_per_block(test.job, plan, test.datasets), 4);
        const Prediction prediction = predict(test.job, plan, test.datasets, 16);
        const double whole = whole_makespan(test, plan);
        EXPECT_NEAR(prediction.seconds / whole, 1.0, 0.05) << capacity;
    }
}

TEST(Predict, ManyEndsGoByTokensAtLast) {
    Case test = timed_case(24, 2, 40, 1);
    for (std::size_t a = 0; a < 24; ++a) {
        test.job.adapters[a].max_steps = static_cast<int>(5 + 9 * a);
    }
    const Plan plan = test.plan();
    const Prediction prediction = predict(test.job, plan, test.datasets, 4);
    EXPECT_EQ(prediction.rounds, 5 + 9 * 23);
    EXPECT_LE(prediction.rounds_played, 32);
    const double whole = whole_makespan(test, plan);
    EXPECT_NEAR(prediction.seconds, whole, 0.1 * whole);
}

TEST(ComparePolicies, HasAllInOrder) {
    const Case test = timed_case(2, 2, 12, 4);
    const Prediction own = predict(test.job, test.plan(), test.datasets, 2);
    const auto results =
        compare_policies(test.job, test.model, test.datasets, test.cluster, 2, own);
    ASSERT_EQ(results.size(), 4U);
    EXPECT_EQ(results[0].policy, SchedulePolicy::sequential);
    EXPECT_EQ(results[3].policy, SchedulePolicy::balanced);
    ASSERT_TRUE(results[3].prediction);
    EXPECT_EQ(results[3].prediction->seconds, own.seconds);
    Case other = test;
    other.job.schedule.policy = SchedulePolicy::mlora;
    ASSERT_TRUE(results[2].prediction);
    EXPECT_EQ(results[2].prediction->seconds,
              predict(other.job, other.plan(), test.datasets, 2).seconds);
    Case small = test;
    small.cluster.bytes_per_rank = 1000;
    EXPECT_FALSE(compare_policies(small.job, small.model, small.datasets, small.cluster, 2, own)[0]
                     .prediction);
}

TEST(DescribePrediction, SaysWhatIsKnown) {
    const Case test = timed_case(2, 2, 400, 4);
    const Plan plan = test.plan();
    const std::string text = describe(plan, predict(test.job, plan, test.datasets, 2));
    for (const char* word : {"costs made up", " tokens/s", "whole job", "8000 tokens in 100 rounds",
                             "extrapolated", "; by stage ", "packing     ", " block"}) {
        EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
    }
    Prediction slow;
    slow.tokens = 100;
    slow.seconds = 10.0;
    Prediction fast = slow;
    fast.seconds = 4.0;
    const std::string published =
        describe({{SchedulePolicy::mlora, fast, slow}}, SchedulePolicy::mlora);
    EXPECT_NE(published.find("mlora as published"), std::string::npos) << published;
    EXPECT_NE(published.find("2.50 x as fast"), std::string::npos) << published;
    const std::string table = describe({{SchedulePolicy::sequential, slow},
                                        {SchedulePolicy::one_f_one_b, std::nullopt},
                                        {SchedulePolicy::balanced, fast}},
                                       SchedulePolicy::balanced);
    EXPECT_NE(table.find("2.50 x as fast"), std::string::npos) << table;
    EXPECT_NE(table.find("does not fit"), std::string::npos) << table;
    EXPECT_NE(table.find("sequential and 1f1b train one adapter to its end"), std::string::npos)
        << table;
}

TEST(IdleRemedies, ArePredictedAsTheJobThatTheyName) {
    const Case test = timed_case(2, 4, 32, 2);
    const Plan plan = test.plan();
    const Prediction own = predict(test.job, plan, test.datasets, 4);
    ASSERT_GT(own.mean_idle_share(), idle_worth_advice);
    const std::vector<ReplicaJob> replicas{{1, 1, 4, {}}};
    const auto remedies =
        idle_remedies(test.job, plan, test.datasets, test.cluster, 4, own,
                      {{{{{1, 4, 1, {}}}, std::nullopt}, {replicas, std::nullopt}}, {}, {}});
    ASSERT_EQ(remedies.size(), 6U);
    EXPECT_EQ(remedies[0].change, "4 adapters at once instead of 2");
    EXPECT_EQ(remedies[1].change, "2 x global_batch_size");
    EXPECT_EQ(remedies[4].change, "pipeline_stages: 1");
    EXPECT_EQ(remedies[4].ranks, 1);
    EXPECT_EQ(remedies[5].change, "[{tp: 1, pp: 1, count: 4}] by built-in costs");
    EXPECT_EQ(remedies[5].ranks, 4);
    for (const IdleRemedy& remedy : remedies) {
        ASSERT_TRUE(remedy.prediction) << remedy.change;
        EXPECT_LT(remedy.prediction->mean_idle_share(), own.mean_idle_share()) << remedy.change;
    }
    const Case four = timed_case(4, 4, 32, 2);
    EXPECT_EQ(remedies[0].prediction->seconds,
              predict(four.job, four.plan(), four.datasets, 4).seconds);
    Case two_ranks = test;
    two_ranks.cluster.ranks = 2;
    EXPECT_EQ(remedies[3].prediction->seconds,
              predict(two_ranks.job, two_ranks.plan(), two_ranks.datasets, 4).seconds);
    const std::string text = describe(own, 4, remedies);
    for (const char* word : {"the job as it is", "pipeline_stages: 2", "per rank", "idle"}) {
        EXPECT_NE(text.find(word), std::string::npos) << text;
    }
}

TEST(IdleRemedies, NoneWhereStagesAreBusyAndNoMoreThanCanBe) {
    Case test = timed_case(3, 4, 32, 2);
    const Plan plan = test.plan();
    Prediction own;
    own.idle_share = {0.1, 0.19};
    EXPECT_TRUE(idle_remedies(test.job, plan, test.datasets, test.cluster, 2, own, {}).empty());
    own.idle_share = {0.2, 0.2};
    test.job.schedule.max_adapters = 2;
    const Plan two = test.plan();
    const auto waiting = idle_remedies(test.job, two, test.datasets, test.cluster, 2, own, {});
    EXPECT_EQ(waiting.front().change, "3 adapters at once instead of 2");
    test.job.schedule.policy = SchedulePolicy::one_f_one_b;
    const Plan one = test.plan();
    for (const auto& remedy :
         idle_remedies(test.job, one, test.datasets, test.cluster, 2, own, {})) {
        EXPECT_EQ(remedy.change.find("adapters"), std::string::npos) << remedy.change;
    }
}

TEST(FindDevice, KnowsTheDevicesWithCosts) {
    for (const std::string& name : device_names()) {
        const auto device = find_device(name);
        ASSERT_TRUE(device) << name;
        EXPECT_EQ(device->name, name);
        EXPECT_EQ(device->backend == BackendKind::cpu, name == "cpu");
        EXPECT_EQ(device->bytes == 0, name == "cpu");
    }
    EXPECT_GT(find_device("h200")->bytes, find_device("h100")->bytes);
    EXPECT_FALSE(find_device("b200"));
    EXPECT_FALSE(find_device(""));
}

TEST(KnownDevice, IsAWordOfTheGpusName) {
    for (const auto& [gpu, device] :
         {std::pair{"NVIDIA H200", "h200"}, std::pair{"NVIDIA GH200 480GB", "h200"},
          std::pair{"NVIDIA H100 80GB HBM3", "h100"}, std::pair{"NVIDIA A100-SXM4-80GB", "a100"},
          std::pair{"NVIDIA A100-PCIE-40GB", "a100"}, std::pair{"NVIDIA A10", "a10"},
          std::pair{"NVIDIA L40S", "l40s"}, std::pair{"NVIDIA L4", "l4"},
          std::pair{"NVIDIA L40", "NVIDIA L40"}, std::pair{"NVIDIA RTX A1000", "NVIDIA RTX A1000"},
          std::pair{"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"}, std::pair{"", ""}}) {
        EXPECT_EQ(known_device(gpu), device);
    }
}

TEST(BuiltInCosts, WhatNobodyMeasuredIsAnEstimate) {
    const Case test = uniform_case(1, 1, 4, 10, 4);
    std::vector<std::string> names = device_names();
    names.emplace_back("NVIDIA T4");
    for (const std::string& name : names) {
        const std::string source = built_in_costs(test.model, DType::bf16, name).source;
        const bool measured = name == "h200" || name == "h100";
        EXPECT_EQ(source.find("an estimate") == std::string::npos, measured) << source;
    }
}

TEST(MakePlan, CostsAreThoseOfTheDeviceUnlessMeasured) {
    Case test = uniform_case(1, 1, 4, 10, 4);
    EXPECT_EQ(test.plan().costs.source, "built in for cpu, an estimate: processors differ");
    test.cluster.backend = BackendKind::cuda;
    EXPECT_EQ(test.plan().costs.source, "built in for h100");
    test.cluster.device = "h200";
    EXPECT_EQ(test.plan().costs.source, "built in for h200");
    test.cluster.device = "NVIDIA T4";
    EXPECT_NE(test.plan().costs.source.find("'NVIDIA T4' is not known"), std::string::npos);
    test.cluster.costs = CostModel{};
    test.cluster.costs->source = "measured";
    EXPECT_EQ(test.plan().costs.source, "measured");
}

TEST(MakePlan, PackingsAreByTheDeviceThatTheRunBeganOn) {
    Case test = uniform_case(1, 1, 4, 10, 4);
    test.cluster.backend = BackendKind::cuda;
    EXPECT_EQ(packing_device(test.plan()), "h100");
    test.cluster.device = "a100";
    const Plan former = test.plan();
    EXPECT_EQ(packing_device(former), "a100");
    const auto source = [&](const Plan& plan) {
        return pack_rules(test.job, only_replica(plan), 1).costs.source;
    };
    EXPECT_EQ(source(former),
              "built in for a100, an estimate: an h200's rates, scaled by the maker's peaks");
    test.cluster.device = "h200";
    EXPECT_EQ(source(test.plan()), "built in for h200");
    const Plan next = plan_job(test.job, test.model, test.datasets, test.cluster, &former).plan;
    EXPECT_EQ(source(next), source(former));
    EXPECT_EQ(next.costs.source, "built in for h200");
}

}  // namespace loratrain::plan_test

#include "plan/deploy/extend_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/stage_layers.h"
#include "plan/text/plan_text.h"
#include "support/problems.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using test::has;

/// A planned job to which one adapter like its first is added.
struct Growth {
    Growth(int adapters, int ranks) : test(uniform_case(adapters, ranks, 20, 10, 8)) {
        test.job.parallel.microbatch_tokens = 64;
        replan();
    }
    void replan() { plan = test.plan(); }
    AdapterJob& add(const std::string& name) {
        AdapterJob adapter = test.job.adapters[0];
        adapter.name = name;
        test.job.adapters.push_back(adapter);
        return test.job.adapters.back();
    }
    void extend() { extend_plan(plan, test.job, test.datasets, "new.yaml"); }
    /// Every problem; the plan must not have changed.
    std::string problems() {
        const std::string before = to_text(plan);
        std::string found;
        try {
            extend();
        } catch (const InputError& error) {
            for (const Problem& problem : error.problems()) found += to_string(problem) + "\n";
        }
        EXPECT_EQ(to_text(plan), before);
        return found;
    }

    Case test;
    Plan plan;
};

}  // namespace

TEST(ExtendPlan, NumbersOfTheNewOnes) {
    Growth growth(3, 1);
    const Plan before = growth.plan;
    growth.add("x").max_steps = 7;
    growth.add("y").global_batch_size = 4;
    growth.extend();
    ASSERT_EQ(growth.plan.adapters.size(), 5U);
    EXPECT_EQ(growth.plan.adapters[3].name, "x");
    EXPECT_EQ(growth.plan.adapters[3].total_steps, 7);
    EXPECT_EQ(growth.plan.adapters[4].steps_per_epoch, 5);
    EXPECT_EQ(growth.plan.adapters[4].total_steps, 5);
    EXPECT_EQ(growth.plan.adapter_capacity, before.adapter_capacity);
    EXPECT_EQ(growth.plan.replicas[0].microbatch_tokens, before.replicas[0].microbatch_tokens);
    EXPECT_EQ(growth.plan.replicas[0].saved_columns, before.replicas[0].saved_columns);
    const Window window =
        plan_window(growth.test.job, growth.plan, growth.test.datasets, fresh(growth.plan), 1);
    EXPECT_EQ(window.batches.size(), 5U);
}

TEST(ExtendPlan, NewDatasetsMayHaveTheLongestSample) {
    Growth growth(1, 1);
    DatasetJob dataset;
    dataset.name = "more";
    growth.test.job.datasets.push_back(dataset);
    growth.test.datasets.push_back({{{64, 3}, {2, 1}}, {}});
    growth.add("x").dataset = DatasetId{1};
    growth.extend();
    EXPECT_EQ(growth.plan.longest_sample, 64);
    EXPECT_EQ(growth.plan.adapters[1].samples, 2);
}

TEST(ExtendPlan, RanksUpToTheColumnsWhereFewShareAMicrobatch) {
    Growth growth(12, 1);
    growth.test.job.schedule.max_adapters = 1;
    for (AdapterJob& adapter : growth.test.job.adapters) adapter.r = 12;
    growth.replan();
    ASSERT_EQ(growth.plan.replicas[0].saved_columns, 16);
    growth.add("wide").r = 16;
    growth.extend();
    growth.add("wider").r = 17;
    EXPECT_TRUE(has(growth.problems(), "rank 17 is larger than 16, the largest"));
}

TEST(ExtendPlan, NewOnesCountInARoundsTokens) {
    Growth growth(1, 2);
    EXPECT_EQ(rounds_per_block(growth.test.job, growth.plan, growth.test.datasets), 16);
    for (const char* name : {"x", "y", "z"}) growth.add(name);
    growth.extend();
    EXPECT_EQ(rounds_per_block(growth.test.job, growth.plan, growth.test.datasets), 4);
}

TEST(ExtendPlan, EveryProblemAtOnce) {
    Growth growth(1, 1);
    DatasetJob dataset;
    dataset.name = "long";
    dataset.path = "long.jsonl";
    growth.test.job.datasets.push_back(dataset);
    growth.test.datasets.push_back({{{65, 3}}, {}});
    growth.add("wide").r = 40;
    growth.add("wider").r = 17;
    growth.add("long").dataset = DatasetId{1};
    const std::string found = growth.problems();
    EXPECT_TRUE(has(found, "new.yaml: adapters.wide.r: rank 40 is larger than 16, the largest"))
        << found;
    EXPECT_TRUE(has(found, "new.yaml: adapters.wider.r: rank 17 is larger than 16, the largest"))
        << found;
    EXPECT_TRUE(
        has(found,
            "new.yaml: datasets.long.path: 1 sample has more tokens than"
            " parallel.microbatch_tokens 64; the longest is number 0 (from 0), with 65 tokens"))
        << found;
    EXPECT_TRUE(has(found, "start a run with microbatch_tokens: 65 or more")) << found;
}

TEST(ExtendPlan, NoMoreThanTheCapacity) {
    Growth growth(1, 1);
    while (std::ssize(growth.test.job.adapters) < growth.plan.adapter_capacity) growth.add("x");
    growth.add("one too many");
    EXPECT_TRUE(has(growth.problems(), "258 adapters in all, but this run has room for 257"));
    growth.test.job.adapters.pop_back();
    growth.extend();
    EXPECT_EQ(std::ssize(growth.plan.adapters), growth.plan.adapter_capacity);
}

TEST(ExtendPlan, NewAdaptersAreOnOneStageInASharedLayer) {
    Growth growth(3, 2);
    growth.test.model = cheap_head_model(4);
    growth.replan();
    share_first_layer(growth.plan, 0, 1);
    const ReplicaPlan before = growth.plan.replicas[0];
    growth.add("x").r = 16;
    growth.extend();
    ASSERT_TRUE(cover_every_layer(growth.plan.replicas[0].stages, 4, 4));
    EXPECT_EQ(layers_of(growth.plan.replicas[0].stages[0], AdapterId{3}).count, 2);
    EXPECT_EQ(layers_of(growth.plan.replicas[0].stages[1], AdapterId{3}).count, 2);
    for (std::size_t s = 0; s < 2; ++s) {
        const StagePlan& stage = growth.plan.replicas[0].stages[s];
        EXPECT_EQ(stage.layer_count, before.stages[s].layer_count);
        EXPECT_EQ(stage.first_layer_adapters, before.stages[s].first_layer_adapters);
        EXPECT_EQ(stage.last_layer_adapters, before.stages[s].last_layer_adapters);
    }
}

TEST(ExtendPlan, ASharedLayerNeedsRoomOnOneStage) {
    Growth growth(3, 2);
    growth.test.model = cheap_head_model(4);
    growth.replan();
    share_first_layer(growth.plan, 0, 1);
    growth.add("x").r = 16;
    const auto largest = [&](std::size_t s) {
        return largest_adapter_bytes(growth.plan.replicas[0].stages[s], growth.test.job,
                                     growth.plan.model);
    };
    EXPECT_EQ(largest(0), adapter_bytes(growth.test.job.adapters[3], growth.plan.model, 2));
    EXPECT_EQ(largest(1), largest(0));
    for (MemoryPlan& memory : growth.plan.memory) {
        memory = {};
        memory.weights = 1000;
        memory.adapters = largest(0) - 1;
    }
    growth.plan.bytes_per_rank = 1000 + largest(0) - 1;
    const std::string found = growth.problems();
    EXPECT_TRUE(has(found, "1 B too little")) << found;
    ++growth.plan.bytes_per_rank;
    growth.extend();
    EXPECT_EQ(growth.plan.memory[0].adapters, largest(0));
    EXPECT_EQ(growth.plan.memory[1].adapters, largest(1));
}

TEST(ExtendPlan, RefusesWhatWouldNeverFit) {
    Growth growth(2, 1);
    growth.test.cluster.bytes_per_rank = growth.plan.memory[0].total();
    growth.test.job.parallel.recompute = Recompute::none;
    growth.replan();
    const std::uint64_t room = growth.plan.memory[0].adapters;
    growth.add("as large").r = 16;
    growth.extend();
    EXPECT_EQ(growth.plan.memory[0].adapters, room);
    growth.test.job.adapters.back().r = 8;
    growth.plan.bytes_per_rank -=
        room - adapter_bytes(growth.test.job.adapters[0], growth.plan.model, 1);
    growth.add("one").r = 9;
    const std::string found = growth.problems();
    EXPECT_TRUE(has(found, "new.yaml: adapters: rank 0 has ")) << found;
    EXPECT_TRUE(has(found, "too little")) << found;
}

}  // namespace loratrain::plan_test

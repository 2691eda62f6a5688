#include "train/adapter_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain {
namespace {

/// Two adapters on a dataset of 400 tokens, one on a dataset of 30, two steps an epoch each.
class Adapters : public ::testing::Test {
  protected:
    Adapters() {
        job_.datasets.resize(2);
        for (const int dataset : {0, 0, 1}) add(dataset, 10);
    }

    void add(int dataset, std::int32_t steps) {
        job_.adapters.emplace_back().dataset = DatasetId{dataset};
        plan_.adapters.push_back({"", 2, 2, steps});
    }

    static AdapterState& state(AdapterTable& table, int adapter) {
        return table[AdapterId{adapter}].state;
    }

    static std::vector<AdapterId> ids(std::initializer_list<int> numbers) {
        std::vector<AdapterId> adapters;
        for (const int number : numbers) adapters.push_back(AdapterId{number});
        return adapters;
    }

    Job job_;
    Plan plan_;
    std::vector<DatasetInfo> datasets_{{{{300, 200}, {100, 50}}, {{70, 60}}},
                                       {{{20, 10}, {10, 5}}, {}}};
};

TEST_F(Adapters, TokensLeftAreThoseOfMeanSteps) {
    AdapterTable table(job_, plan_, datasets_);
    EXPECT_DOUBLE_EQ(table.work_left().tokens, 10 * (200 + 200 + 15));
    state(table, 0).steps = 10;
    state(table, 2).steps = 4;
    EXPECT_DOUBLE_EQ(table.work_left().tokens, 10 * 200 + 6 * 15);
}

TEST_F(Adapters, WhatHasEndedIsNotLeftAndWhatWaitsIs) {
    AdapterTable table(job_, plan_, datasets_);
    state(table, 0).status = AdapterStatus::stopped;
    state(table, 1).status = AdapterStatus::waiting;
    EXPECT_DOUBLE_EQ(table.work_left().tokens, 10 * (200 + 15));
    EXPECT_FALSE(table.finished());
    for (const AdapterId a : table.all()) table[a].state.status = AdapterStatus::done;
    EXPECT_EQ(table.work_left().tokens, 0.0);
    EXPECT_EQ(table.work_left().rounds, 0);
    EXPECT_TRUE(table.finished());
}

TEST_F(Adapters, FinishedIsEveryEnd) {
    AdapterTable table(job_, plan_, datasets_);
    state(table, 0).status = AdapterStatus::done;
    state(table, 1).status = AdapterStatus::stopped;
    state(table, 2).status = AdapterStatus::stopped_early;
    EXPECT_TRUE(table.finished());
    EXPECT_FALSE(table.any_failed());
    state(table, 2).status = AdapterStatus::failed;
    EXPECT_TRUE(table.finished());
    EXPECT_TRUE(table.any_failed());
    state(table, 0).status = AdapterStatus::waiting;
    EXPECT_FALSE(table.finished());
}

TEST_F(Adapters, RoundsLeftAreThoseOfTheLongestOrOfAllInTurn) {
    AdapterTable table(job_, plan_, datasets_);
    state(table, 0).steps = 3;
    state(table, 1).steps = 8;
    state(table, 2).steps = 5;
    job_.schedule.policy = SchedulePolicy::balanced;
    EXPECT_EQ(table.work_left().rounds, 7);
    job_.schedule.policy = SchedulePolicy::sequential;
    EXPECT_EQ(table.work_left().rounds, 7 + 2 + 5);
}

TEST_F(Adapters, ThoseThatAreAddedWaitAndHaveTheirDatasets) {
    AdapterTable table(job_, plan_, datasets_);
    state(table, 1).steps = 4;
    datasets_.push_back({{{1000, 1}}, {}});
    add(2, 1);
    plan_.adapters.back().steps_per_epoch = 1;
    add(0, 2);
    EXPECT_EQ(table.grow(), ids({3, 4}));
    EXPECT_TRUE(table.grow().empty());
    EXPECT_EQ(table.size(), 5U);
    EXPECT_EQ(table.running(), ids({0, 1, 2}));
    EXPECT_EQ(state(table, 1).steps, 4);
    EXPECT_EQ(state(table, 3).status, AdapterStatus::waiting);
    EXPECT_DOUBLE_EQ(table.work_left().tokens, 200 * (10 + 6 + 2) + 15 * 10 + 1000);
}

TEST_F(Adapters, WhoIsNotAdmittedWaitsUnlessItHasEnded) {
    AdapterTable table(job_, plan_, datasets_);
    state(table, 0).status = AdapterStatus::done;
    state(table, 1).steps = 1;
    table.admit(ids({2}));
    EXPECT_EQ(table.running(), ids({2}));
    EXPECT_EQ(state(table, 0).status, AdapterStatus::done);
    EXPECT_EQ(state(table, 1).status, AdapterStatus::waiting);
    const std::vector<AdapterClaim> claims = table.claims();
    ASSERT_EQ(claims.size(), 3U);
    EXPECT_FALSE(claims[0].unfinished);
    EXPECT_TRUE(claims[1].unfinished && claims[1].begun);
    EXPECT_TRUE(claims[2].unfinished && !claims[2].begun);
    table.admit(ids({1}));
    EXPECT_EQ(table.running(), ids({1}));
}

TEST_F(Adapters, AStreamIsPlannedFromWhereTheyStand) {
    AdapterTable table(job_, plan_, datasets_);
    table.reached(6);
    state(table, 1).steps = 6;
    table.admit(ids({0, 1}));
    const Progress progress = table.progress();
    EXPECT_EQ(progress.round, 6);
    EXPECT_EQ(progress.steps, (std::vector<std::int32_t>{0, 6, 0}));
    EXPECT_EQ(progress.stopped, (std::vector<bool>{false, false, true}));
}

/// At a ninth and a third of ten steps; without a decision nobody takes the last one.
TEST_F(Adapters, TrialsStopAtRungs) {
    job_.sweep = SweepJob{};
    job_.sweep->scheduler = TrialScheduler::halving;
    for (const std::size_t trial : {1U, 2U}) job_.adapters[trial].trial = true;
    AdapterTable table(job_, plan_, datasets_);
    using Steps = std::vector<std::int32_t>;
    EXPECT_EQ(table.progress().stops, (Steps{10, 2, 2}));
    EXPECT_EQ(table.progress().rungs, (Steps{0, 2, 2}));
    state(table, 1).rungs = {1.0};  // on speculation
    state(table, 2).rungs = {1.0, 1.0};
    EXPECT_EQ(table.progress().stops, (Steps{10, 4, 9}));
    EXPECT_EQ(table.progress().rungs, (Steps{0, 4, 0}));
    state(table, 2).promoted = 2;
    EXPECT_EQ(table.progress().stops, (Steps{10, 4, 10}));
}

TEST_F(Adapters, ACheckpointComesBackAndMoreStepsAreTrained) {
    AdapterTable table(job_, plan_, datasets_);
    table.reached(10);
    for (const int a : {0, 1}) {
        state(table, a).steps = 10;
        state(table, a).status = AdapterStatus::done;
    }
    const RunState saved = table.state(2.5);
    EXPECT_EQ(saved.round, 10);
    EXPECT_EQ(saved.elapsed_seconds, 2.5);
    plan_.adapters[1].total_steps = 12;
    AdapterTable continued(job_, plan_, datasets_);
    continued.restore(saved);
    EXPECT_EQ(continued.round(), 10);
    EXPECT_EQ(state(continued, 0).status, AdapterStatus::done);
    EXPECT_EQ(state(continued, 1).status, AdapterStatus::running);
    EXPECT_EQ(continued.steps_left(AdapterId{1}), 2);
    EXPECT_THROW(continued.restore(RunState{}), Error);
}

}  // namespace
}  // namespace loratrain

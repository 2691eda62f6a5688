#include "train/records/work_left.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

/// Two adapters on a dataset of 400 tokens, one on a dataset of 30, two steps an epoch each.
class Working : public ::testing::Test {
  protected:
    Working() {
        job_.datasets.resize(2);
        for (const int dataset : {0, 0, 1}) add(dataset, 10);
    }

    void add(int dataset, std::int32_t steps) {
        job_.adapters.emplace_back().dataset = DatasetId{dataset};
        plan_.adapters.push_back({"", 2, 2, steps});
        state_.adapters.emplace_back();
    }

    Job job_;
    Plan plan_;
    std::vector<DatasetInfo> datasets_{{{{300, 200}, {100, 50}}, {{70, 60}}},
                                       {{{20, 10}, {10, 5}}, {}}};
    RunState state_;
};

TEST_F(Working, TokensAreThoseOfMeanSteps) {
    const WorkCounter work(job_, plan_, datasets_);
    EXPECT_DOUBLE_EQ(work.left(state_).tokens, 10 * (200 + 200 + 15));
    state_.adapters[0].steps = 10;
    state_.adapters[2].steps = 4;
    EXPECT_DOUBLE_EQ(work.left(state_).tokens, 10 * 200 + 6 * 15);
}

TEST_F(Working, WhatHasEndedIsNotLeftAndWhatWaitsIs) {
    const WorkCounter work(job_, plan_, datasets_);
    state_.adapters[0].status = AdapterStatus::stopped;
    state_.adapters[1].status = AdapterStatus::waiting;
    EXPECT_DOUBLE_EQ(work.left(state_).tokens, 10 * (200 + 15));
    for (AdapterState& adapter : state_.adapters) adapter.status = AdapterStatus::done;
    EXPECT_EQ(work.left(state_).tokens, 0.0);
    EXPECT_EQ(work.left(state_).rounds, 0);
}

TEST_F(Working, RoundsAreThoseOfTheLongestOrOfAllInTurn) {
    const WorkCounter work(job_, plan_, datasets_);
    state_.adapters[0].steps = 3;
    state_.adapters[1].steps = 8;
    state_.adapters[2].steps = 5;
    job_.schedule.policy = SchedulePolicy::balanced;
    EXPECT_EQ(work.left(state_).rounds, 7);
    job_.schedule.policy = SchedulePolicy::sequential;
    EXPECT_EQ(work.left(state_).rounds, 7 + 2 + 5);
}

TEST_F(Working, AdaptersMayBeAddedWithTheirDatasets) {
    WorkCounter work(job_, plan_, datasets_);
    datasets_.push_back({{{1000, 1}}, {}});
    add(2, 1);
    plan_.adapters.back().steps_per_epoch = 1;
    work.add_adapters();
    EXPECT_DOUBLE_EQ(work.left(state_).tokens, 10 * (200 + 200 + 15) + 1000);
}

}  // namespace
}  // namespace loratrain

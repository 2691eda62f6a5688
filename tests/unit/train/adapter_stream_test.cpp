#include <gtest/gtest.h>

#include "train/adapter_table.h"

namespace loratrain {
namespace {

constexpr AdapterId adapter_a{0};
constexpr AdapterId adapter_b{1};
constexpr AdapterId third{2};

/// Three adapters of ten steps in the stream that began at round 4, where the second had two
/// steps; evaluated every three rounds. The third has no eval samples.
class AdapterStream : public ::testing::Test {
  protected:
    AdapterStream() {
        job.datasets.resize(2);
        job.eval.every_steps = 3;
        for (const int dataset : {0, 0, 1}) {
            job.adapters.emplace_back().dataset = DatasetId{dataset};
            plan.adapters.push_back({"", 2, 2, 10});
        }
        table.emplace(job, plan, datasets);
        table->reached(4);
        (*table)[adapter_b].state.steps = 2;
        table->begin_stream();
    }

    void make_trials() {
        job.sweep.emplace();
        job.sweep->scheduler = TrialScheduler::halving;
        for (AdapterJob& adapter : job.adapters) adapter.trial = true;
    }

    StreamPart& stream(AdapterId a) { return (*table)[a].stream; }

    Job job;
    Plan plan;
    std::vector<DatasetInfo> datasets{{{{300, 200}}, {{70, 60}}}, {{{20, 10}}, {}}};
    std::optional<AdapterTable> table;
};

TEST_F(AdapterStream, StepsBeforeARoundCountFromWhereItJoined) {
    EXPECT_EQ(table->steps_before(adapter_a, 4), 0);
    EXPECT_EQ(table->steps_before(adapter_a, 7), 3);
    EXPECT_EQ(table->steps_before(adapter_b, 7), 5);
    EXPECT_EQ(table->steps_before(adapter_b, 12), 10);
    EXPECT_EQ(table->steps_before(adapter_b, 20), 10) << "no more than it has";
    stream(adapter_b).join(15, 6);
    EXPECT_EQ(table->steps_before(adapter_b, 17), 8);
}

TEST_F(AdapterStream, WhoeverLeavesTrainsNoFurtherThanItsLastStep) {
    EXPECT_TRUE(table->trains_beyond(adapter_b, 11));
    EXPECT_FALSE(table->trains_beyond(adapter_b, 12));
    EXPECT_EQ(table->steps_to_come(adapter_b), 8);
    stream(adapter_b).leave_at(5);
    EXPECT_FALSE(table->trains_beyond(adapter_b, 5));
    EXPECT_EQ(table->steps_before(adapter_b, 20), 5);
    EXPECT_EQ(table->steps_to_come(adapter_b), 3);
}

TEST_F(AdapterStream, WhoeverNeverJoinedDoesNotTrainBeyondAnyRound) {
    (*table)[third].state.status = AdapterStatus::waiting;
    table->begin_stream();
    EXPECT_EQ(table->in_stream(), (std::vector<AdapterId>{adapter_a, adapter_b}));
    EXPECT_FALSE(table->trains_beyond(third, 0));
    EXPECT_EQ(stream(third).phase(), Phase::outside);
}

TEST_F(AdapterStream, PendingAreEvaluationsThatAreDueAndNotTakenIn) {
    EXPECT_EQ(table->evaluations_pending(adapter_a, 5), 0);
    EXPECT_EQ(table->evaluations_pending(adapter_a, 6), 1);
    EXPECT_EQ(table->evaluations_pending(adapter_a, 9), 2);
    stream(adapter_a).note_evaluation(2);  // behind round 6
    EXPECT_EQ(table->evaluations_pending(adapter_a, 9), 1);
    EXPECT_EQ(table->evaluations_pending(adapter_b, 6), 1);
    stream(adapter_b).note_evaluation(4);
    EXPECT_EQ(table->evaluations_pending(adapter_b, 6), 0);
    EXPECT_EQ(table->evaluations_pending(third, 9), 0) << "it has no eval samples";
    job.eval.every_steps = 0;
    EXPECT_EQ(table->evaluations_pending(adapter_a, 9), 0);
}

TEST_F(AdapterStream, BatchesAreEvaluatedBehindWhereItIsDueAndAtTheEnd) {
    BatchPlan batch;
    batch.step = 1;
    batch.round = 5;
    EXPECT_TRUE(table->is_evaluated_behind(batch)) << "round 6 is due";
    batch.round = 6;
    EXPECT_FALSE(table->is_evaluated_behind(batch));
    batch.last_of_adapter = true;
    EXPECT_TRUE(table->is_evaluated_behind(batch));
    batch.adapter = third;
    EXPECT_FALSE(table->is_evaluated_behind(batch)) << "it has no eval samples";
}

TEST_F(AdapterStream, IsEvaluatedAsksForTheLastStep) {
    EXPECT_FALSE(table->is_evaluated(adapter_a));
    EXPECT_TRUE(table->is_evaluated(third)) << "it has no eval samples";
    (*table)[adapter_a].state.steps = 4;
    stream(adapter_a).note_evaluation(3);
    EXPECT_FALSE(table->is_evaluated(adapter_a));
    stream(adapter_a).note_evaluation(4);
    EXPECT_TRUE(table->is_evaluated(adapter_a));
}

/// Of ten steps rungs are at 2, 4 and 10.
TEST_F(AdapterStream, TrialsComeToRungsByTheirOwnSteps) {
    EXPECT_FALSE(table->has_rungs());
    make_trials();
    EXPECT_TRUE(table->has_rungs());
    EXPECT_TRUE(table->comes_to_rung(adapter_a, 6)) << "two steps";
    EXPECT_FALSE(table->comes_to_rung(adapter_a, 5));
    EXPECT_FALSE(table->comes_to_rung(adapter_b, 6)) << "it has passed it";
    EXPECT_TRUE(table->is_at_rung(adapter_b, 2)) << "behind round 4, which is not due";
    EXPECT_FALSE(table->is_at_rung(adapter_a, 2)) << "behind round 6 all are evaluated";
    stream(adapter_a).leave_at(2);
    EXPECT_FALSE(table->comes_to_rung(adapter_a, 6)) << "it ends there";
}

TEST_F(AdapterStream, ShortTrialsEndBeforeTheRungsOfOthers) {
    make_trials();
    plan.adapters[0].total_steps = 1;
    EXPECT_TRUE(table->ends_before_rungs(adapter_a));
    EXPECT_FALSE(table->ends_before_rungs(adapter_b));
    job.adapters[0].trial = false;
    EXPECT_FALSE(table->ends_before_rungs(adapter_a));
}

TEST_F(AdapterStream, AnEmptyPipelineHasAllSteps) {
    stream(third).enter(Phase::stepped);
    stream(third).enter(Phase::exporting);
    table->end_stream(9);
    EXPECT_EQ(table->round(), 9);
    EXPECT_EQ(stream(adapter_a).phase(), Phase::stepped);
    EXPECT_EQ(stream(third).phase(), Phase::exporting) << "it was further";
    table->begin_stream();
    EXPECT_EQ(stream(adapter_a).phase(), Phase::training);
    EXPECT_EQ(stream(adapter_a).first_round(), 9);
}

TEST_F(AdapterStream, WhatOthersOwnIsNotInCheckpointsNorLeftToTrain) {
    (*table)[adapter_b].owned = false;
    (*table)[adapter_b].state.steps = 7;
    EXPECT_EQ(table->state(0.0).adapters[1].steps, 0);
    EXPECT_EQ(table->state(0.0).adapters[1].status, AdapterStatus::waiting);
    EXPECT_FALSE(table->claims()[1].unfinished);
    EXPECT_DOUBLE_EQ(table->work_left().tokens, 10 * 150 + 10 * 10);
}

}  // namespace
}  // namespace loratrain

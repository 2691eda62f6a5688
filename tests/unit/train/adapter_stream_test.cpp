#include <gtest/gtest.h>

#include "train/adapter_table.h"

namespace loratrain {
namespace {

constexpr AdapterId fresh{0};
constexpr AdapterId begun{1};
constexpr AdapterId untested{2};

/// Three adapters of ten steps in the stream that began at round 4, where `begun` had two steps;
/// evaluated every three rounds. `untested` has no eval samples.
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
        (*table)[begun].state.steps = 2;
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
    EXPECT_EQ(table->steps_before(fresh, 4), 0);
    EXPECT_EQ(table->steps_before(fresh, 7), 3);
    EXPECT_EQ(table->steps_before(begun, 7), 5);
    EXPECT_EQ(table->steps_before(begun, 12), 10);
    EXPECT_EQ(table->steps_before(begun, 20), 10) << "no more than it has";
    stream(begun).join(15, 6);
    EXPECT_EQ(table->steps_before(begun, 17), 8);
}

TEST_F(AdapterStream, WhoeverLeavesTrainsNoFurtherThanItsLastStep) {
    EXPECT_TRUE(table->trains_beyond(begun, 11));
    EXPECT_FALSE(table->trains_beyond(begun, 12));
    EXPECT_EQ(table->steps_to_come(begun), 8);
    stream(begun).leave_at(5);
    EXPECT_FALSE(table->trains_beyond(begun, 5));
    EXPECT_EQ(table->steps_before(begun, 20), 5);
    EXPECT_EQ(table->steps_to_come(begun), 3);
}

TEST_F(AdapterStream, WhoeverNeverJoinedDoesNotTrainBeyondAnyRound) {
    (*table)[untested].state.status = AdapterStatus::waiting;
    table->begin_stream();
    EXPECT_EQ(table->in_stream(), (std::vector<AdapterId>{fresh, begun}));
    EXPECT_FALSE(table->trains_beyond(untested, 0));
    EXPECT_EQ(stream(untested).phase(), Phase::outside);
}

TEST_F(AdapterStream, PendingAreEvaluationsThatAreDueAndNotTakenIn) {
    EXPECT_EQ(table->evaluations_pending(fresh, 5), 0);
    EXPECT_EQ(table->evaluations_pending(fresh, 6), 1);
    EXPECT_EQ(table->evaluations_pending(fresh, 9), 2);
    stream(fresh).note_evaluation(2);  // behind round 6
    EXPECT_EQ(table->evaluations_pending(fresh, 9), 1);
    EXPECT_EQ(table->evaluations_pending(begun, 6), 1);
    stream(begun).note_evaluation(4);
    EXPECT_EQ(table->evaluations_pending(begun, 6), 0);
    EXPECT_EQ(table->evaluations_pending(untested, 9), 0) << "it has no eval samples";
    job.eval.every_steps = 0;
    EXPECT_EQ(table->evaluations_pending(fresh, 9), 0);
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
    batch.adapter = untested;
    EXPECT_FALSE(table->is_evaluated_behind(batch)) << "it has no eval samples";
}

TEST_F(AdapterStream, IsEvaluatedAsksForTheLastStep) {
    EXPECT_FALSE(table->is_evaluated(fresh));
    EXPECT_TRUE(table->is_evaluated(untested)) << "it has no eval samples";
    (*table)[fresh].state.steps = 4;
    stream(fresh).note_evaluation(3);
    EXPECT_FALSE(table->is_evaluated(fresh));
    stream(fresh).note_evaluation(4);
    EXPECT_TRUE(table->is_evaluated(fresh));
}

/// Of ten steps rungs are at 2, 4 and 10.
TEST_F(AdapterStream, TrialsComeToRungsByTheirOwnSteps) {
    EXPECT_FALSE(table->has_rungs());
    make_trials();
    EXPECT_TRUE(table->has_rungs());
    EXPECT_TRUE(table->comes_to_rung(fresh, 6)) << "two steps";
    EXPECT_FALSE(table->comes_to_rung(fresh, 5));
    EXPECT_FALSE(table->comes_to_rung(begun, 6)) << "it has passed it";
    EXPECT_TRUE(table->is_at_rung(begun, 2)) << "behind round 4, which is not due";
    EXPECT_FALSE(table->is_at_rung(fresh, 2)) << "behind round 6 all are evaluated";
    stream(fresh).leave_at(2);
    EXPECT_FALSE(table->comes_to_rung(fresh, 6)) << "it ends there";
}

TEST_F(AdapterStream, ShortTrialsEndBeforeTheRungsOfOthers) {
    make_trials();
    plan.adapters[0].total_steps = 1;
    EXPECT_TRUE(table->ends_at_rungs(fresh));
    EXPECT_FALSE(table->ends_at_rungs(begun));
    job.adapters[0].trial = false;
    EXPECT_FALSE(table->ends_at_rungs(fresh));
}

TEST_F(AdapterStream, AnEmptyPipelineHasAllSteps) {
    stream(untested).enter(Phase::stepped);
    stream(untested).enter(Phase::exporting);
    table->end_stream(9);
    EXPECT_EQ(table->round(), 9);
    EXPECT_EQ(stream(fresh).phase(), Phase::stepped);
    EXPECT_EQ(stream(untested).phase(), Phase::exporting) << "it was further";
    table->begin_stream();
    EXPECT_EQ(stream(fresh).phase(), Phase::training);
    EXPECT_EQ(stream(fresh).first_round(), 9);
}

TEST_F(AdapterStream, WhatOthersOwnIsNotInCheckpointsNorLeftToTrain) {
    (*table)[begun].owned = false;
    (*table)[begun].state.steps = 7;
    EXPECT_EQ(table->state(0.0).adapters[1].steps, 0);
    EXPECT_EQ(table->state(0.0).adapters[1].status, AdapterStatus::waiting);
    EXPECT_FALSE(table->claims()[1].unfinished);
    EXPECT_DOUBLE_EQ(table->work_left().tokens, 10 * 150 + 10 * 10);
}

}  // namespace
}  // namespace loratrain

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "plan/schedule/schedule_stream.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using Evaluations = ScheduleStream::Evaluations;

constexpr AdapterId leaver{1};
constexpr AdapterId comer{2};
constexpr std::int32_t change_round = 3;

/// Four adapters of 12 steps, evaluated every five rounds; on ranks, or with a deployment.
Case changing_case(int ranks, const std::vector<ReplicaJob>& deployment = {}) {
    Case test = uniform_case(4, ranks, 12, 10, 2);
    test.job.parallel.microbatch_tokens = 20;
    test.job.parallel.deployment = deployment;
    if (!deployment.empty()) test.model = cheap_head_model(4);
    test.job.eval.every_steps = 5;
    test.datasets[0].eval = equal_samples(5, 10);
    for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 12;
    return test;
}

std::vector<Case> changing_cases() {
    return {changing_case(1), changing_case(2), changing_case(4), changing_case(2, {{1, 1, 2, {}}}),
            changing_case(4, {{1, 2, 2, {}}})};
}

Progress start_of(const Plan& plan) {
    Progress progress = fresh(plan);
    progress.stopped[index(comer)] = true;
    return progress;
}

/// As of a run that begins anew at the change.
Progress changed(Progress progress) {
    progress.stopped[index(leaver)] = true;
    progress.stopped[index(comer)] = false;
    return progress;
}

/// Windows of one round each, but for the first, up to the end of all adapters; the last drains.
std::vector<JointWindow> rest_of(ScheduleStream& stream) {
    std::vector<JointWindow> windows;
    do windows.push_back(stream.next(1, false));
    while (windows.back().common().rounds > 0);
    windows.push_back(stream.next(0, true));
    return windows;
}

std::vector<std::string> trained(const std::vector<JointWindow>& windows) {
    std::vector<std::string> all;
    for (const JointWindow& joint : windows) {
        for (const Window& window : joint.replicas) add_trained(window, all);
    }
    return all;
}

/// Steps after which the adapter is evaluated.
std::vector<std::int32_t> evaluated(const std::vector<JointWindow>& windows, AdapterId adapter) {
    std::vector<std::int32_t> steps;
    for (const JointWindow& joint : windows) {
        for (const BatchPlan& batch : joint.common().batches) {
            if (batch.evaluation && batch.adapter == adapter) steps.push_back(batch.step);
        }
    }
    return steps;
}

using Steps = std::vector<std::int32_t>;

}  // namespace

/// The checker has accepted every window, or next() would have thrown.
TEST(StreamChanges, TrainWhatAStreamFromThereTrains) {
    for (const Case& test : changing_cases()) {
        const Plan plan = test.plan();
        for (const Evaluations evaluations : {Evaluations::none, Evaluations::due}) {
            ScheduleStream stream(test.job, plan, test.datasets, start_of(plan), 1, evaluations);
            stream.next(change_round, false, true);
            ASSERT_EQ(stream.round(), change_round);
            ScheduleStream anew(test.job, plan, test.datasets, changed(stream.progress()), 1,
                                evaluations);
            stream.end(leaver);
            stream.begin(comer);
            const std::vector<JointWindow> windows = rest_of(stream);
            EXPECT_EQ(trained(windows), trained(rest_of(anew)));
            EXPECT_EQ(stream.progress().steps, (Steps{12, change_round, 12, 12}));
            const bool due = evaluations == Evaluations::due;
            EXPECT_EQ(evaluated(windows, leaver), due ? Steps{change_round} : Steps{});
            EXPECT_EQ(evaluated(windows, comer), due ? (Steps{0, 2, 7, 12}) : Steps{});
        }
    }
}

TEST(StreamChanges, AnAdapterThatEndsTakesItsLastStepWhileOthersTrain) {
    for (const Case& test : changing_cases()) {
        const Plan plan = test.plan();
        for (const Evaluations evaluations : {Evaluations::none, Evaluations::due}) {
            ScheduleStream stream(test.job, plan, test.datasets, start_of(plan), 1, evaluations);
            std::vector<JointWindow> windows{stream.next(change_round, false, true)};
            const auto& batches = windows.front().common().batches;
            const auto last =
                std::find_if(batches.rbegin(), batches.rend(), [](const BatchPlan& batch) {
                    return batch.adapter == leaver && !batch.evaluation;
                });
            const auto number_of_last = static_cast<std::int32_t>(batches.rend() - last) - 1;
            stream.end(leaver);
            for (int i = 0; i < 6; ++i) windows.push_back(stream.next(1, false));
            std::size_t steps = 0;
            std::size_t stages = 0;
            for (const ReplicaPlan& replica : plan.replicas) stages += replica.stages.size();
            for (const JointWindow& joint : windows) {
                for (const Window& window : joint.replicas) {
                    for (const std::vector<Action>& actions : window.actions) {
                        steps += static_cast<std::size_t>(std::count_if(
                            actions.begin(), actions.end(), [&](const Action& action) {
                                return action.kind == ActionKind::step &&
                                       action.batch == number_of_last;
                            }));
                    }
                }
            }
            EXPECT_EQ(steps, stages);
        }
    }
}

/// Behind a round where all are evaluated it is not once more.
TEST(StreamChanges, OneEvaluationBehindTheLastStep) {
    const Case test = changing_case(2);
    const Plan plan = test.plan();
    ScheduleStream stream(test.job, plan, test.datasets, start_of(plan), 1, Evaluations::due);
    std::vector<JointWindow> windows{stream.next(5, false, true)};
    stream.end(leaver);
    for (const JointWindow& window : rest_of(stream)) windows.push_back(window);
    EXPECT_EQ(evaluated(windows, leaver), Steps{5});
}

/// One that goes on later, as a trial that makes room for others.
TEST(StreamChanges, APausedOneGoesOnWhereItWas) {
    constexpr std::int32_t rounds_apart = 1;
    for (const Case& test : changing_cases()) {
        const Plan plan = test.plan();
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1, Evaluations::due);
        std::vector<JointWindow> windows{stream.next(change_round, false, true)};
        stream.pause(leaver);
        Progress paused = stream.progress();
        EXPECT_TRUE(paused.stopped[index(leaver)]);
        windows.push_back(stream.next(rounds_apart, false, true));
        ScheduleStream without(test.job, plan, test.datasets, paused, 1, Evaluations::due);
        EXPECT_EQ(trained({windows.back()}), trained({without.next(rounds_apart, true, true)}));
        stream.begin(leaver);
        ScheduleStream anew(test.job, plan, test.datasets, stream.progress(), 1, Evaluations::due);
        const std::vector<JointWindow> rest = rest_of(stream);
        EXPECT_EQ(trained(rest), trained(rest_of(anew)));
        windows.insert(windows.end(), rest.begin(), rest.end());
        EXPECT_EQ(stream.progress().steps, (Steps{12, 12, 12, 12}));
        EXPECT_EQ(evaluated(windows, leaver), (Steps{4, 9, 12}));  // not as it pauses
    }
}

TEST(StreamChanges, OneThatIsKnownIsNotEvaluatedAsItBegins) {
    const Case test = changing_case(2);
    const Plan plan = test.plan();
    ScheduleStream stream(test.job, plan, test.datasets, start_of(plan), 1, Evaluations::due);
    stream.next(change_round, false, true);
    stream.begin(comer, true);
    EXPECT_EQ(evaluated(rest_of(stream), comer), (Steps{2, 7, 12}));
}

/// With an adapter that it did not know it goes on as a stream that begins there with it.
TEST(StreamChanges, AStreamThatGrowsTrainsWhatOneFromThereTrains) {
    for (const Case& all : changing_cases()) {
        const Plan whole = all.plan();
        Case test = all;
        test.job.adapters.pop_back();
        Plan plan = whole;
        plan.adapters.pop_back();
        for (const Evaluations evaluations : {Evaluations::none, Evaluations::due}) {
            Job job = test.job;
            Plan growing = plan;
            std::vector<DatasetInfo> datasets = test.datasets;
            ScheduleStream stream(job, growing, datasets, fresh(growing), 1, evaluations);
            stream.next(1, false);
            const std::int32_t round = stream.round();
            ASSERT_LT(round, 12);
            job = all.job;
            growing = whole;
            const std::vector<DatasetInfo> grown = all.datasets;
            datasets.clear();
            stream.grow(grown);
            const AdapterId added{3};
            EXPECT_EQ(stream.progress().steps, (Steps{round, round, round, 0}));
            EXPECT_TRUE(stream.progress().stopped[index(added)]);
            Progress there = stream.progress();
            there.stopped[index(added)] = false;
            ScheduleStream anew(all.job, whole, all.datasets, there, 1, evaluations);
            stream.begin(added);
            const std::vector<JointWindow> windows = rest_of(stream);
            EXPECT_EQ(trained(windows), trained(rest_of(anew)));
            EXPECT_EQ(stream.progress().steps, (Steps{12, 12, 12, 12}));
            const bool due = evaluations == Evaluations::due;
            EXPECT_EQ(evaluated(windows, added).empty(), !due);
            if (due) {
                EXPECT_EQ(evaluated(windows, added).front(), 0);
            }
        }
    }
}

/// One that has grown and not let anybody begin goes on as before.
TEST(StreamChanges, WhoIsAddedDoesNotTrainByThat) {
    const Case all = changing_case(2);
    Job job = all.job;
    job.adapters.pop_back();
    const Plan whole = all.plan();
    Plan plan = whole;
    plan.adapters.pop_back();
    ScheduleStream stream(job, plan, all.datasets, fresh(plan), 1, Evaluations::due);
    stream.next(2, false);
    job = all.job;
    plan = whole;
    stream.grow(all.datasets);
    rest_of(stream);
    EXPECT_EQ(stream.progress().steps, (Steps{12, 12, 12, 0}));
}

TEST(StreamChanges, WhatCannotBeIsRefused) {
    const Case test = changing_case(2);
    const Plan plan = test.plan();
    ScheduleStream stream(test.job, plan, test.datasets, start_of(plan), 1, Evaluations::due);
    stream.next(1, false, true);
    EXPECT_THROW(stream.end(comer), Error);
    stream.begin(comer);
    EXPECT_THROW(stream.next(0, true), Error);
}

}  // namespace loratrain::plan_test

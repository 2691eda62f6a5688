#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "plan/cost/cost_model.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"
#include "plan/schedule/schedule_stream.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using Evaluations = ScheduleStream::Evaluations;
using Evaluated = std::set<std::pair<std::int32_t, std::int32_t>>;  // adapter, step

constexpr std::int32_t every = 2;

/// Adapters that end after 3, 5, 7, ... steps and are evaluated every two rounds.
Case evaluated_case(int adapters, int ranks) {
    Case test = uniform_case(adapters, ranks, 12, 10, 2);
    test.job.parallel.microbatch_tokens = 20;
    test.job.eval.every_steps = every;
    test.datasets[0].eval = equal_samples(5, 10);
    for (std::size_t a = 0; a < test.job.adapters.size(); ++a) {
        test.job.adapters[a].max_steps = static_cast<int>(3 + 2 * a);
    }
    return test;
}

/// The stream from the start to the end of all adapters.
std::vector<Window> windows_of(const Case& test, const Plan& plan, Evaluations evaluations,
                               std::int32_t rounds) {
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1, evaluations);
    std::vector<Window> windows;
    do windows.push_back(stream.next(rounds, false).common());
    while (windows.back().rounds > 0);
    windows.push_back(stream.next(0, true).common());
    return windows;
}

/// What is trained, a microbatch each.
std::vector<std::string> trained_in(const std::vector<Window>& windows) {
    std::vector<std::string> all;
    for (const Window& window : windows) add_trained(window, all);
    return all;
}

/// Samples of evaluations of others than one adapter, a microbatch each.
std::vector<std::string> evaluated_in(const Window& window, AdapterId but) {
    std::vector<std::string> all;
    for (const Microbatch& microbatch : window.microbatches) {
        if (!microbatch.evaluation || microbatch.segments.front().adapter == but) continue;
        std::string& words = all.emplace_back();
        for (const Segment& segment : microbatch.segments) {
            words += cat(" a", number(segment.adapter));
            for (const SampleRef& sample : segment.samples) words += cat(" ", sample.index);
        }
    }
    return all;
}

/// With windows that await the adapter, or nobody.
std::vector<Window> awaiting_windows(const Case& test, const Plan& plan,
                                     const std::vector<AdapterId>& adapters) {
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1, Evaluations::due);
    std::vector<Window> windows;
    do {
        stream.await(adapters);
        windows.push_back(stream.next(every, false).common());
    } while (windows.back().rounds > 0);
    windows.push_back(stream.next(0, true).common());
    return windows;
}

/// Windows that end with an evaluation of the adapter which the last stage has not computed then.
int ends_before_evaluation(const std::vector<Window>& windows, AdapterId adapter) {
    int ends = 0;
    std::set<std::int32_t> forwarded;
    for (const Window& window : windows) {
        for (const Action& action : window.actions.back()) {
            if (action.kind == ActionKind::forward) forwarded.insert(number(action.microbatch));
        }
        for (const BatchPlan& batch : window.batches) {
            const bool at_end = batch.round + 1 == window.first_round + window.rounds;
            if (!batch.evaluation || batch.adapter != adapter || !at_end) continue;
            ends += forwarded.contains(number(batch.last_microbatch)) ? 0 : 1;
        }
    }
    return ends;
}

Evaluated due_in(const Plan& plan) {
    Evaluated due;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        const auto id = static_cast<std::int32_t>(a);
        const std::int32_t last = plan.adapters[a].total_steps;
        for (std::int32_t step = every; step < last; step += every) due.emplace(id, step);
        due.emplace(id, last);
    }
    return due;
}

double idle_of(const Case& test, const Plan& plan, const std::vector<Window>& windows) {
    Simulator simulator(test.job, only_replica(plan), plan.costs);
    for (const Window& window : windows) simulator.add(window);
    return simulator.timeline().idle_share();
}

}  // namespace

TEST(StreamEvaluation, EveryAdapterWhereItIsDueAndAtItsEnd) {
    const Case test = evaluated_case(4, 3);
    const Plan plan = test.plan();
    Evaluated found;
    for (const Window& window : windows_of(test, plan, Evaluations::due, 2)) {
        for (const BatchPlan& batch : window.batches) {
            if (!batch.evaluation) continue;
            EXPECT_EQ(batch.samples, 5);
            EXPECT_EQ(batch.targets, 45);
            EXPECT_TRUE(found.emplace(number(batch.adapter), batch.step).second);
        }
    }
    EXPECT_EQ(found, due_in(plan));
}

/// Counts the steps that each stage takes, as the program would.
TEST(StreamEvaluation, AllForwardsSeeTheStepsThatTheirSegmentsName) {
    for (const int ranks : {1, 2, 3}) {
        const Case test = evaluated_case(4, ranks);
        const Plan plan = test.plan();
        std::vector<std::map<AdapterId, std::int32_t>> taken(static_cast<std::size_t>(ranks));
        std::vector<BatchPlan> batches;
        std::vector<Microbatch> microbatches;
        std::vector<int> evaluated(taken.size(), 0);
        for (const Window& window : windows_of(test, plan, Evaluations::due, 3)) {
            batches.insert(batches.end(), window.batches.begin(), window.batches.end());
            microbatches.insert(microbatches.end(), window.microbatches.begin(),
                                window.microbatches.end());
            for (std::size_t s = 0; s < taken.size(); ++s) {
                for (const Action& action : window.actions[s]) {
                    if (action.kind == ActionKind::step) {
                        const auto b = static_cast<std::size_t>(action.batch);
                        EXPECT_EQ(taken[s][batches[b].adapter]++, batches[b].step);
                    }
                    if (action.kind != ActionKind::forward) continue;
                    const Microbatch& microbatch = microbatches[index(action.microbatch)];
                    evaluated[s] += microbatch.evaluation ? 1 : 0;
                    for (const Segment& segment : microbatch.segments) {
                        EXPECT_EQ(taken[s][segment.adapter], segment.step);
                    }
                }
            }
        }
        for (std::size_t s = 0; s < taken.size(); ++s) {
            EXPECT_GT(evaluated[s], 0);
            for (const auto& [adapter, steps] : taken[s]) {
                EXPECT_EQ(steps, plan.adapters[index(adapter)].total_steps);
            }
        }
    }
}

TEST(StreamEvaluation, TrainsTheSameMicrobatches) {
    const Case test = evaluated_case(4, 3);
    const Plan plan = test.plan();
    const auto trained = [&](Evaluations evaluations, std::int32_t rounds) {
        return trained_in(windows_of(test, plan, evaluations, rounds));
    };
    const auto without = trained(Evaluations::none, 1000);
    EXPECT_EQ(trained(Evaluations::due, 1000), without);
    EXPECT_EQ(trained(Evaluations::due, 1), without);
}

TEST(StreamEvaluation, AdaptersThatEndTakeTheirLastStepWhileOthersTrain) {
    Case test = evaluated_case(2, 3);
    test.job.adapters[1].max_steps = 40;
    const Plan plan = test.plan();
    for (const Evaluations evaluations : {Evaluations::none, Evaluations::due}) {
        std::vector<Window> windows = windows_of(test, plan, evaluations, 2);
        windows.pop_back();  // where it drains
        std::int32_t last = -1;
        std::size_t steps = 0;
        for (const Window& window : windows) {
            for (std::size_t b = 0; b < window.batches.size(); ++b) {
                const bool ends = window.batches[b].last_of_adapter && last < 0;
                if (ends) last = window.first_batch + static_cast<std::int32_t>(b);
            }
            for (const std::vector<Action>& actions : window.actions) {
                for (const Action& action : actions) {
                    const bool step = action.kind == ActionKind::step;
                    steps += step && action.batch == last ? 1U : 0U;
                }
            }
        }
        EXPECT_GE(last, 0);
        EXPECT_EQ(steps, plan.replicas[0].stages.size());
    }
}

TEST(StreamEvaluation, TheCheckerFindsAnEvaluationOfOtherWeights) {
    const Case test = evaluated_case(2, 1);
    const Plan plan = test.plan();
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1, Evaluations::due);
    const Window valid = stream.next(4, true).common();
    const auto findings = [&](const Window& window) {
        return join(check_window(test.job, plan, window), "\n");
    };
    ASSERT_EQ(findings(valid), "");
    const auto evaluates = [&](const Action& action) {
        return action.kind == ActionKind::forward &&
               valid.microbatches[index(action.microbatch)].evaluation;
    };
    const auto forward = std::find_if(valid.actions[0].begin(), valid.actions[0].end(), evaluates) -
                         valid.actions[0].begin();
    ASSERT_GT(forward, 0);
    ASSERT_EQ(valid.actions[0][static_cast<std::size_t>(forward) - 1].kind, ActionKind::step);
    Window early = valid;
    std::iter_swap(early.actions[0].begin() + forward, early.actions[0].begin() + forward - 1);
    EXPECT_NE(findings(early).find("stale weights"), std::string::npos) << findings(early);
    Window late = valid;
    std::rotate(late.actions[0].begin() + forward, late.actions[0].begin() + forward + 1,
                late.actions[0].end());
    EXPECT_NE(findings(late), "");
    Window wrong = valid;
    for (BatchPlan& batch : wrong.batches) batch.step += batch.evaluation ? 1 : 0;
    for (Microbatch& microbatch : wrong.microbatches) {
        for (Segment& segment : microbatch.segments) segment.step += microbatch.evaluation ? 1 : 0;
    }
    EXPECT_NE(findings(wrong).find("does not follow"), std::string::npos) << findings(wrong);
    Window mixed = valid;
    for (BatchPlan& batch : mixed.batches) batch.evaluation = false;
    EXPECT_NE(findings(mixed).find("no entry"), std::string::npos) << findings(mixed);
}

/// Where a window ends with the evaluation of an adapter that is awaited, its last stage has
/// computed it; that takes no longer.
TEST(StreamEvaluation, AwaitedOnesAreThereWhenTheirWindowEnds) {
    constexpr AdapterId awaited{7};  // the last in every round
    for (const int ranks : {1, 2, 4}) {
        Case test = evaluated_case(8, ranks);
        CostModel costs;
        costs.layer_forward.fixed = 1.0;
        costs.layer_backward.fixed = 2.0;
        test.cluster.costs = costs;
        const Plan plan = test.plan();
        const std::vector<Window> usual = awaiting_windows(test, plan, {});
        const std::vector<Window> awaiting = awaiting_windows(test, plan, {awaited});
        EXPECT_EQ(trained_in(awaiting), trained_in(usual));
        EXPECT_EQ(ends_before_evaluation(awaiting, awaited), 0);
        EXPECT_EQ(ends_before_evaluation(usual, awaited) > 0, ranks > 1);
        EXPECT_LT(idle_of(test, plan, awaiting), idle_of(test, plan, usual) + 0.005);
    }
}

/// Trials that come to a rung are evaluated together on the first samples, where their block ends,
/// and the last stage has computed it when their window ends.
TEST(StreamEvaluation, TrialsAtRungsAreEvaluatedTogether) {
    constexpr std::int32_t rung = 3;
    for (const int ranks : {1, 2, 4}) {
        Case test = evaluated_case(4, ranks);
        test.job.eval.every_steps = 0;
        test.job.sweep = SweepJob{};
        test.job.sweep->rung_eval_samples = 3;
        const Plan plan = test.plan();
        Progress start = fresh(plan);
        start.rungs = start.stops = {0, rung, rung, 0};
        ScheduleStream stream(test.job, plan, test.datasets, start, 1, Evaluations::due);
        const Window window = stream.next(rung, false).common();
        ASSERT_EQ(window.rounds, rung);
        std::set<std::int32_t> at_rung;
        std::set<std::int32_t> ended;
        for (const BatchPlan& batch : window.batches) {
            if (!batch.evaluation) continue;
            EXPECT_EQ(batch.step, rung);
            const bool is_trial = number(batch.adapter) == 1 || number(batch.adapter) == 2;
            EXPECT_EQ(batch.samples, is_trial ? 3 : 5);
            (is_trial ? at_rung : ended).insert(number(batch.adapter));
        }
        EXPECT_EQ(at_rung, (std::set<std::int32_t>{1, 2}));
        EXPECT_EQ(ended, std::set<std::int32_t>{0});  // at its end
        EXPECT_EQ(ends_before_evaluation({window}, AdapterId{1}), 0);
        EXPECT_EQ(ends_before_evaluation({window}, AdapterId{2}), 0);
        const Window drained = plan_eval_window(
            test.job, plan, first_eval_samples(test.datasets, 3), {AdapterId{1}, AdapterId{2}});
        EXPECT_EQ(evaluated_in(window, AdapterId{0}), evaluated_in(drained, AdapterId{0}));
        stream.pause(AdapterId{1});
        start.rungs = {0, 0, 5, 0};
        start.stops = {3, 7, 5, 9};
        stream.stop_at(start);
        Evaluated later;
        Window next;
        do {
            next = stream.next(1, false).common();
            for (const BatchPlan& batch : next.batches) {
                if (batch.evaluation) later.emplace(number(batch.adapter), batch.step);
            }
        } while (next.rounds > 0);
        EXPECT_NO_THROW(stream.next(0, true));
        EXPECT_EQ(later, (Evaluated{{2, 5}, {2, 7}, {3, 9}}));
    }
}

/// Beside the same run with the pipeline emptied for every evaluation and every end.
TEST(StreamEvaluation, LeavesLessIdleThanDrains) {
    Case test = evaluated_case(8, 4);
    CostModel costs;
    costs.layer_forward.fixed = 1.0;
    costs.layer_backward.fixed = 2.0;
    test.cluster.costs = costs;
    const Plan plan = test.plan();
    std::vector<Window> drained;
    for (Progress progress = fresh(plan);;) {
        ScheduleStream stream(test.job, plan, test.datasets, progress);
        drained.push_back(stream.next(1, true).common());  // a block: it ends where either is due
        if (drained.back().rounds == 0) break;
        std::vector<AdapterId> due;
        for (const BatchPlan& batch : drained.back().batches) {
            const std::int32_t steps = batch.step + 1;
            const bool last = batch.round + 1 == stream.round();
            if (last && (steps % every == 0 || batch.last_of_adapter)) due.push_back(batch.adapter);
        }
        advance(progress, drained.back());
        if (!due.empty()) drained.push_back(plan_eval_window(test.job, plan, test.datasets, due));
    }
    drained.pop_back();
    const std::vector<Window> one_stream = windows_of(test, plan, Evaluations::due, 4);
    EXPECT_LT(idle_of(test, plan, one_stream), 0.9 * idle_of(test, plan, drained));
}

}  // namespace loratrain::plan_test

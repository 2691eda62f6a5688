#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/action_traits.h"
#include "plan/schedule/check_window.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"
#include "unit/plan/replay.h"

namespace loratrain::plan_test {

namespace {

/// Forwards and backwards of a stage: "FFBFB".
std::string compute_pattern(const Window& window, std::size_t stage) {
    std::string pattern;
    for (const Action& action : window.actions[stage]) {
        if (action.kind == ActionKind::forward) pattern += 'F';
        if (action.kind == ActionKind::backward) pattern += 'B';
    }
    return pattern;
}

std::string repeat(const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
}

std::string actions_of(const Window& window, std::size_t stage) {
    std::vector<std::string> words;
    for (const Action& action : window.actions[stage]) words.push_back(action_text(action));
    return join(words, " ");
}

/// `adapters` adapters on `ranks` ranks with batches of `batch` samples of 10 tokens.
Window window_of(int adapters, int ranks, int batch, std::int32_t rounds) {
    const auto samples = static_cast<std::size_t>(batch) * static_cast<std::size_t>(rounds);
    Case test = uniform_case(adapters, ranks, samples, 10, batch);
    if (ranks > 1) test.job.schedule.policy = SchedulePolicy::mlora;
    const Plan plan = test.plan();
    return plan_window(test.job, plan, test.datasets, fresh(plan), rounds);
}

}  // namespace

TEST(Pipeline, OneAdapterIsPlainOneForwardOneBackward) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
        Case test = uniform_case(1, ranks, 24, 10, 24);
        test.job.parallel.microbatch_tokens = 10;
        const Plan plan = test.plan();
        const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
        ASSERT_EQ(window.microbatches.size(), 24U);
        for (int s = 0; s < ranks; ++s) {
            const int warm_up = ranks - 1 - s;
            EXPECT_EQ(compute_pattern(window, static_cast<std::size_t>(s)),
                      repeat("F", warm_up) + repeat("FB", 24 - warm_up) + repeat("B", warm_up));
            EXPECT_EQ(window.peak_in_flight[static_cast<std::size_t>(s)], ranks - s);
        }
        EXPECT_EQ(replay(window).makespan, 10 * (3 * 24 + 3 * (ranks - 1)));
    }
}

TEST(Pipeline, AsManyAdaptersAsStagesLeaveNoBubble) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
        const std::int32_t rounds = 6;
        const Window window = window_of(ranks, ranks, 4, rounds);
        const auto microbatches = static_cast<std::int64_t>(ranks) * rounds;
        ASSERT_EQ(std::ssize(window.microbatches), microbatches);
        EXPECT_EQ(replay(window).makespan, 40 * (3 * microbatches + 3 * (ranks - 1)))
            << ranks << " stages";
    }
}

TEST(Pipeline, TwoAdaptersInSplitBatchesFillFourStages) {
    const Window window = window_of(2, 4, 8, 6);
    ASSERT_EQ(window.microbatches.size(), 48U);
    EXPECT_EQ(replay(window).makespan, 20 * (3 * 48 + 3 * 3));
}

TEST(Pipeline, OneStageHasNoMessages) {
    const Window window = window_of(2, 1, 1, 2);
    EXPECT_EQ(actions_of(window, 0), "F0@0 B0@0 S0 S1 F1@0 B1@0 S2 S3");
    EXPECT_EQ(window.peak_in_flight, std::vector<std::int32_t>{1});
}

TEST(Pipeline, NormsRideWithTheMessages) {
    const Window window = window_of(2, 2, 1, 2);
    EXPECT_EQ(actions_of(window, 0),
              "F0@0 sf0@0>1 F1@1 sf1@1>1 rb0%0<1[0] B0@0%0 S0 F2@0 sf2@0>1[0] rb1%1<1[1] B1@1%1 "
              "S1 F3@1 sf3@1>1[1] rb2%0<1[2] B2@0%0 rb3%1<1[3] B3@1%1 S2 S3 sn%0>1[2,3]");
    EXPECT_EQ(actions_of(window, 1),
              "rf0@0<0 F0@0 B0@0%0 sb0%0>0[0] rf1@0<0 F1@0 B1@0%1 sb1%1>0[1] rf2@0<0[0] S0 F2@0 "
              "B2@0%0 sb2%0>0[2] rf3@0<0[1] S1 F3@0 B3@0%1 sb3%1>0[3] rn%0<0[2,3] S2 S3");
}

TEST(Pipeline, AMessageMayCarrySeveralBatches) {
    Case test = uniform_case(4, 2, 4, 10, 1);
    test.job.parallel.microbatch_tokens = 20;
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 2);
    ASSERT_EQ(window.microbatches.size(), 4U);
    EXPECT_EQ(
        actions_of(window, 1),
        "rf0@0<0 F0@0 B0@0%0 sb0%0>0[0,1] rf1@0<0 F1@0 B1@0%1 sb1%1>0[2,3] rf2@0<0[0,1] S0 S1 "
        "F2@0 B2@0%0 sb2%0>0[4,5] rf3@0<0[2,3] S2 S3 F3@0 B3@0%1 sb3%1>0[6,7] "
        "rn%0<0[4,5,6,7] S4 S5 S6 S7");
}

TEST(Pipeline, EvaluationHasForwardsOnly) {
    Case test = uniform_case(1, 2, 4, 10, 1);
    test.job.datasets[0].eval_path = "eval.jsonl";
    test.datasets[0].eval = equal_samples(2, 10);
    const Plan plan = test.plan();
    const Window window = plan_eval_window(test.job, plan, test.datasets, {AdapterId{0}});
    EXPECT_TRUE(window.microbatches[0].evaluation && window.batches[0].evaluation);
    EXPECT_EQ(actions_of(window, 0), "F0@0 sf0@0>1 F1@1 sf1@1>1");
    EXPECT_EQ(actions_of(window, 1), "rf0@0<0 F0@0 rf1@0<0 F1@0");
    ASSERT_EQ(window.batches.size(), 1U);
    EXPECT_EQ(window.batches[0].targets, 18);
}

TEST(Pipeline, RemainingAdapterIsSplitOverTheStages) {
    Case test = uniform_case(2, 2, 8, 10, 4);
    test.job.adapters[1].max_steps = 1;
    test.job.schedule.policy = SchedulePolicy::mlora;
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 2);
    EXPECT_EQ(window.microbatches.size(), 4U);
    EXPECT_TRUE(window.batches[1].last_of_adapter);
}

TEST(Pipeline, NothingLeftGivesAnEmptyWindow) {
    Case test = uniform_case(1, 2, 2, 10, 1);
    const Plan plan = test.plan();
    Progress progress = fresh(plan);
    progress.steps[0] = 2;
    const Window window = plan_window(test.job, plan, test.datasets, progress, 3);
    EXPECT_EQ(window.rounds, 0);
    EXPECT_TRUE(window.batches.empty());
    EXPECT_EQ(window.actions.size(), 2U);
    EXPECT_TRUE(plan_eval_window(test.job, plan, test.datasets, {AdapterId{0}}).batches.empty());
}

/// Forward outputs stay in their slots until the backward; gradients need one send buffer only.
TEST(Pipeline, OneGradientSendBufferIsEnough) {
    for (int seed = 0; seed < random_cases(10); ++seed) {
        const Case test = random_case(static_cast<std::uint64_t>(seed));
        const Plan plan = test.plan();
        const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 20);
        EXPECT_TRUE(replay(window, {unlimited, 1}).finished) << "seed " << seed;
    }
}

}  // namespace loratrain::plan_test

#include "train/checkpoint/state_at_round.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain::test {
namespace {

constexpr AdapterId first{0};
constexpr AdapterId second{1};

AdapterState after(std::int32_t steps, double loss) {
    AdapterState state;
    state.steps = steps;
    state.last_loss = loss;
    return state;
}

AdapterState evaluated(AdapterState state, double eval_loss) {
    state.first_eval_loss = state.first_eval_loss < 0 ? eval_loss : state.first_eval_loss;
    state.last_eval_loss = eval_loss;
    return state;
}

TEST(StateAtRound, IsOfTheStepThatEndsTheRoundBefore) {
    StateAtRound state(7, {{7, -1, false}, {3, -1, false}});
    state.note(first, after(6, 0.6), 1.0);
    state.note(second, after(3, 0.3), 1.0);
    EXPECT_FALSE(state.is_known());
    EXPECT_THROW(state.state({}), Error);
    state.note(first, after(7, 0.7), 2.5);
    EXPECT_TRUE(state.is_known());
    state.note(first, after(8, 0.8), 3.0);
    state.note(second, after(4, 0.4), 3.0);
    const RunState run = state.state({});
    EXPECT_EQ(run.round, 7);
    EXPECT_EQ(run.elapsed_seconds, 2.5);
    ASSERT_EQ(run.adapters.size(), 2U);
    EXPECT_EQ(run.adapters[0].steps, 7);
    EXPECT_EQ(run.adapters[0].last_loss, 0.7);
    EXPECT_EQ(run.adapters[1].last_loss, 0.3);
}

TEST(StateAtRound, AnEvaluationMayComeBehindLaterSteps) {
    StateAtRound state(10, {{10, 10, false}});
    state.note(first, after(10, 0.1), 1.0);
    EXPECT_FALSE(state.is_known());
    AdapterState now = after(12, 0.2);
    now = evaluated(now, 2.0);
    state.note_evaluation(first, 5, now);  // of an earlier round
    EXPECT_FALSE(state.is_known());
    now = evaluated(now, 1.5);
    state.note_evaluation(first, 10, now);
    EXPECT_TRUE(state.is_known());
    state.note_evaluation(first, 15, evaluated(now, 1.0));
    const AdapterState kept = state.state({}).adapters[0];
    EXPECT_EQ(kept.steps, 10);
    EXPECT_EQ(kept.last_loss, 0.1);
    EXPECT_EQ(kept.first_eval_loss, 2.0);
    EXPECT_EQ(kept.last_eval_loss, 1.5);
}

TEST(StateAtRound, MayAwaitAnEvaluationOfEarlierSteps) {
    StateAtRound state(10, {{3, 0, false}});
    state.note(first, after(3, 0.1), 1.0);
    EXPECT_FALSE(state.is_known());
    state.note_evaluation(first, 0, evaluated(after(4, 0.2), 2.0));
    ASSERT_TRUE(state.is_known());
    EXPECT_EQ(state.state({}).adapters[0].steps, 3);
    EXPECT_EQ(state.state({}).adapters[0].first_eval_loss, 2.0);
}

TEST(StateAtRound, OneThatHasEndedIsAsItIsSettledLater) {
    StateAtRound state(10, {{4, -1, true}, {10, -1, false}});
    state.note(first, after(4, 0.4), 1.0);
    state.note(second, after(10, 0.1), 1.0);
    ASSERT_TRUE(state.is_known());
    RunState now;
    now.adapters = {after(4, 0.4), after(11, 0.2)};
    now.adapters[0].status = AdapterStatus::done;
    now.deployment.judged_for = {AdapterId{1}};
    const RunState run = state.state(now);
    EXPECT_EQ(run.deployment.judged_for, now.deployment.judged_for);
    EXPECT_EQ(run.adapters[0].status, AdapterStatus::done);
    EXPECT_EQ(run.adapters[1].steps, 10);
    EXPECT_EQ(state.ended(), std::vector<AdapterId>{first});
}

}  // namespace
}  // namespace loratrain::test

#include "train/checkpoint/run_state.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace loratrain::test {
namespace {

/// Evaluates every 10 steps with these losses; returns the step of the early stop, 0 = none.
std::int32_t stop_of(const EvalJob& eval, const std::vector<double>& losses,
                     AdapterState* end = nullptr) {
    AdapterState adapter;
    for (const double loss : losses) {
        adapter.steps += 10;
        adapter.last_eval_loss = loss;
        note_evaluation(eval, adapter.steps, adapter);
        if (end != nullptr) *end = adapter;
        if (!early_stop_reason(eval, adapter).empty()) return adapter.steps;
    }
    return 0;
}

TEST(EarlyStopping, AfterPatienceEvaluationsWithoutGain) {
    const EvalJob eval{10, false, 2, 0.0};
    EXPECT_EQ(stop_of(eval, {3.0, 2.0, 2.5, 1.9, 1.9, 1.95, 1.0}), 60);
    EXPECT_EQ(stop_of(eval, {3.0, 2.0, 1.0, 0.5}), 0);
    EXPECT_EQ(stop_of(eval, {3.0, 3.0, 3.0}), 30);
    EXPECT_EQ(stop_of({10, true, 0, 0.0}, {1.0, 2.0, 3.0, 4.0}), 0);
}

TEST(EarlyStopping, SmallGainsKeepTheBestButDoNotCount) {
    AdapterState adapter;
    EXPECT_EQ(stop_of({10, false, 2, 0.1}, {2.0, 1.95, 1.91}, &adapter), 30);
    EXPECT_EQ(adapter.best_eval_loss, 1.91);
    EXPECT_EQ(adapter.best_step, 30);
    EXPECT_EQ(stop_of({10, false, 2, 0.1}, {2.0, 1.95, 1.8, 1.75}), 0);
}

TEST(EarlyStopping, LossesThatAreNotFiniteAreNoGain) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    AdapterState adapter;
    EXPECT_EQ(stop_of({10, false, 2, 0.0}, {nan, 2.0, nan, nan}, &adapter), 40);
    EXPECT_EQ(adapter.best_step, 20);
    EXPECT_EQ(early_stop_reason({10, false, 2, 0.0}, adapter),
              "no better eval loss in 2 evaluations; the best was 2.0000 at step 20");
    EXPECT_EQ(stop_of({10, false, 2, 0.0}, {nan, nan}, &adapter), 20);
    EXPECT_EQ(early_stop_reason({10, false, 2, 0.0}, adapter),
              "no better eval loss in 2 evaluations");
}

TEST(EarlyStopping, NotesTheBest) {
    AdapterState adapter;
    adapter.steps = 5;
    adapter.last_eval_loss = 2.0;
    EXPECT_TRUE(note_evaluation({}, adapter.steps, adapter));
    EXPECT_FALSE(note_evaluation({}, adapter.steps, adapter));
    adapter.last_eval_loss = 1.5;
    EXPECT_TRUE(note_evaluation({}, adapter.steps, adapter));
    EXPECT_EQ(adapter.best_eval_loss, 1.5);
}

}  // namespace
}  // namespace loratrain::test

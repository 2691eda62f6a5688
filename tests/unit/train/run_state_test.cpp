#include "train/checkpoint/run_state.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

RunState example() {
    RunState state;
    state.round = 17;
    state.elapsed_seconds = 12.34567890123;
    state.adapters.resize(2);
    state.adapters[0] = {17, 0, AdapterStatus::running, 0.1, 2.5, 1.25, 0.0, 0.75, 1.125, 12, 2};
    state.adapters[1] = {9, 5, AdapterStatus::failed, 0.3, -1.0, -1.0, -1.0, -1.0, -1.0, 0, 0};
    return state;
}

TEST(RunState, RoundTrip) {
    const RunFolder folder;
    const RunState state = example();
    const RunState read = run_state_from_json(to_json(state, folder.job), folder.job, "state.json");
    EXPECT_EQ(read.round, 17);
    EXPECT_EQ(read.elapsed_seconds, state.elapsed_seconds);
    ASSERT_EQ(read.adapters.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(read.adapters[i].steps, state.adapters[i].steps);
        EXPECT_EQ(read.adapters[i].bad_steps_in_row, state.adapters[i].bad_steps_in_row);
        EXPECT_EQ(read.adapters[i].status, state.adapters[i].status);
        EXPECT_EQ(read.adapters[i].last_loss, state.adapters[i].last_loss);
        EXPECT_EQ(read.adapters[i].losses.values(), state.adapters[i].losses.values());
        EXPECT_EQ(read.adapters[i].first_eval_loss, state.adapters[i].first_eval_loss);
        EXPECT_EQ(read.adapters[i].last_eval_loss, state.adapters[i].last_eval_loss);
        EXPECT_EQ(read.adapters[i].first_exact_match, state.adapters[i].first_exact_match);
        EXPECT_EQ(read.adapters[i].last_exact_match, state.adapters[i].last_exact_match);
        EXPECT_EQ(read.adapters[i].best_eval_loss, state.adapters[i].best_eval_loss);
        EXPECT_EQ(read.adapters[i].best_step, state.adapters[i].best_step);
        EXPECT_EQ(read.adapters[i].evaluations_without_gain,
                  state.adapters[i].evaluations_without_gain);
    }
}

TEST(RunState, LossesAreKeptForTheirMean) {
    const RunFolder folder;
    RunState state = example();
    AdapterState& one = state.adapters[0];
    for (int i = 1; i <= 12; ++i) take_step(i, i, true, one);
    EXPECT_EQ(one.losses.value(), 7.5) << "of the last ten";
    const std::string text = to_json(state, folder.job);
    const auto read = [&](const std::string& from) {
        return run_state_from_json(from, folder.job, "state.json").adapters[0];
    };
    EXPECT_EQ(read(text).losses.values(), one.losses.values());
    take_step(13, std::numeric_limits<double>::quiet_NaN(), false, one);
    EXPECT_TRUE(std::isnan(read(to_json(state, folder.job)).losses.value()));
}

TEST(RunState, NumbersThatAreNotFiniteSurvive) {
    const RunFolder folder;
    RunState state = example();
    state.adapters[0].last_loss = std::numeric_limits<double>::quiet_NaN();
    state.adapters[0].first_eval_loss = std::numeric_limits<double>::quiet_NaN();
    const RunState read = run_state_from_json(to_json(state, folder.job), folder.job, "state.json");
    EXPECT_TRUE(std::isnan(read.adapters[0].last_loss));
    EXPECT_TRUE(std::isnan(read.adapters[0].first_eval_loss));
}

TEST(RunState, WhoTheDeploymentIsForIsKept) {
    const RunFolder folder;
    RunState state = example();
    EXPECT_EQ(to_json(state, folder.job).find("deployment"), std::string::npos);
    state.deployment = {{AdapterId{0}, AdapterId{1}}, {AdapterId{1}}};
    const RunState read = run_state_from_json(to_json(state, folder.job), folder.job, "state.json");
    EXPECT_EQ(read.deployment.made_for, state.deployment.made_for);
    EXPECT_EQ(read.deployment.judged_for, state.deployment.judged_for);
    EXPECT_EQ(unfinished_in(read), std::vector<AdapterId>{AdapterId{0}});
}

TEST(RunState, EveryEndIsKept) {
    RunState state = example();
    for (const AdapterStatus status :
         {AdapterStatus::done, AdapterStatus::stopped_early, AdapterStatus::stopped}) {
        state.adapters[0].status = status;
        EXPECT_TRUE(is_exportable(status));
        const RunFolder folder;
        const RunState read = run_state_from_json(to_json(state, folder.job), folder.job, "x");
        EXPECT_EQ(read.adapters[0].status, status);
    }
    EXPECT_FALSE(is_exportable(AdapterStatus::failed));
}

TEST(RunState, BadStepsInARowEndAnAdapter) {
    AdapterState adapter;
    for (std::int32_t step = 1; step < bad_steps_allowed; ++step) {
        take_step(step, 1.0, false, adapter);
    }
    EXPECT_EQ(failure_reason(adapter, 100), "");
    take_step(6, 1.5, true, adapter);
    EXPECT_EQ(adapter.bad_steps_in_row, 0);
    for (std::int32_t step = 7; step < 7 + bad_steps_allowed; ++step) {
        take_step(step, 1.0, false, adapter);
    }
    for (const bool finite : {true, false, true, false}) {
        take_step(adapter.steps + 1, 1.0, finite, adapter);  // of the window that was under way
    }
    EXPECT_EQ(failure_reason(adapter, 100),
              "gradients were not finite in 5 steps in a row; it was given up after step 15");
}

TEST(RunState, ALastLossThatIsNotFiniteEndsAnAdapter) {
    AdapterState adapter;
    take_step(9, std::numeric_limits<double>::quiet_NaN(), true, adapter);
    EXPECT_EQ(failure_reason(adapter, 10), "");
    take_step(10, std::numeric_limits<double>::infinity(), true, adapter);
    EXPECT_EQ(failure_reason(adapter, 10), "the loss of the last step is not finite");
    take_step(10, 0.5, true, adapter);
    EXPECT_EQ(failure_reason(adapter, 10), "");
}

TEST(RunState, TheFirstEvaluationIsKept) {
    AdapterState adapter;
    EXPECT_TRUE(is_untouched(adapter));
    take_evaluation(std::numeric_limits<double>::quiet_NaN(), 0.25, adapter);
    EXPECT_FALSE(adapter.first_eval_loss < 0);
    take_evaluation(2.0, 0.5, adapter);
    EXPECT_TRUE(std::isnan(adapter.first_eval_loss));
    EXPECT_EQ(adapter.first_exact_match, 0.25);
    EXPECT_EQ(adapter.last_eval_loss, 2.0);
    EXPECT_EQ(adapter.last_exact_match, 0.5);
}

TEST(RunState, WaitingIsUnfinished) {
    const RunFolder folder;
    RunState state = example();
    state.adapters[0].status = AdapterStatus::waiting;
    EXPECT_FALSE(is_exportable(AdapterStatus::waiting));
    EXPECT_TRUE(is_unfinished(AdapterStatus::waiting));
    EXPECT_TRUE(is_unfinished(AdapterStatus::running));
    EXPECT_FALSE(is_unfinished(AdapterStatus::stopped));
    const RunState read = run_state_from_json(to_json(state, folder.job), folder.job, "x");
    EXPECT_EQ(read.adapters[0].status, AdapterStatus::waiting);
}

TEST(RunState, AddedAdaptersWaitAtTheStart) {
    RunFolder folder;
    const std::string text = to_json(example(), folder.job);
    folder.job.adapters.emplace_back();
    folder.job.adapters.back().name = "added";
    const RunState read = run_state_from_json(text, folder.job, "x");
    ASSERT_EQ(read.adapters.size(), 3U);
    EXPECT_EQ(read.adapters[0].steps, 17);
    EXPECT_EQ(read.adapters[1].status, AdapterStatus::failed);
    EXPECT_EQ(read.adapters[2].steps, 0);
    EXPECT_EQ(read.adapters[2].status, AdapterStatus::waiting);
}

TEST(RunState, WhatDoneSays) {
    AdapterState state = example().adapters[0];
    EvalJob eval;
    state.status = AdapterStatus::done;
    EXPECT_EQ(done_text(eval, state), "17 steps\n");
    state.status = AdapterStatus::stopped;
    EXPECT_EQ(done_text(eval, state), "17 steps, stopped by the user\n");
    state.status = AdapterStatus::stopped_early;
    eval.early_stopping_patience = 2;
    EXPECT_EQ(done_text(eval, state),
              "17 steps, stopped early: no better eval loss in 2 evaluations; the best was 1.1250"
              " at step 12\n");
}

TEST(RunState, ValuesThatNoRunCanHave) {
    const RunFolder folder;
    const std::string good = to_json(example(), folder.job);
    EXPECT_NO_THROW(run_state_from_json(good, folder.job, "x"));
    const std::pair<const char*, const char*> changes[] = {
        {"\"round\": 17", "\"round\": 1099511627776"},
        {"\"round\": 17", "\"round\": 16"},
        {"\"round\": 17", "\"round\": \"abc\""},
        {"\"steps\": 17", "\"steps\": -1"},
        {"\"steps\": 17", "\"steps\": 17.5"},
        {"\"steps\": 9", "\"steps\": 4294967305"},
        {"\"bad_steps_in_row\": 5", "\"bad_steps_in_row\": 10"},
        {"\"best_step\": 12", "\"best_step\": 18"},
        {"\"evaluations_without_gain\": 2", "\"evaluations_without_gain\": -2"},
        {"\"RUNNING\"", "\"WALKING\""},
        {"\"last_loss\": 0.1", "\"last_loss\": [0.1]"},
        {"\"elapsed_seconds\"", "\"elapsed\""}};
    for (const auto& [from, to] : changes) {
        std::string bad = good;
        ASSERT_NE(bad.find(from), std::string::npos) << from;
        bad.replace(bad.find(from), std::string(from).size(), to);
        EXPECT_THROW(run_state_from_json(bad, folder.job, "x"), InputError) << to;
    }
}

TEST(RunState, DamageIsAnInputErrorThatNamesTheFile) {
    const RunFolder folder;
    std::string text = to_json(example(), folder.job);
    for (const std::string& bad :
         {text.substr(0, text.size() / 2), std::string("{}"), std::string("[]"), std::string()}) {
        try {
            run_state_from_json(bad, folder.job, "ckpt/17/state.json");
            FAIL() << bad;
        } catch (const InputError& error) {
            EXPECT_TRUE(error.problems().front().where.starts_with("ckpt/17/state.json"));
        }
    }
}

}  // namespace
}  // namespace loratrain::test

#include "train/workers/worker_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace loratrain::test {
namespace {

Job job_of_two() {
    Job job;
    job.adapters.resize(2);
    job.adapters[0].name = "first";
    job.adapters[1].name = "second";
    return job;
}

AdapterState some_state() {
    AdapterState state;
    state.steps = 7;
    state.status = AdapterStatus::parked;
    state.last_loss = 1.0 / 3.0;
    state.losses.add(std::numeric_limits<double>::quiet_NaN());
    state.losses.add(0.1);
    state.last_eval_loss = 0.7;
    state.rungs = {0.5, std::numeric_limits<double>::infinity()};
    state.promoted = 1;
    state.reason = "two\nlines";
    return state;
}

TEST(WorkerMessage, ReportsTravel) {
    const Job job = job_of_two();
    WorkerReport report;
    EXPECT_TRUE(report.empty());
    report.worker = 3;
    report.states = {{AdapterId{1}, some_state()}};
    report.at_rung = {AdapterId{1}};
    report.metrics = {{AdapterId{0}, "{\"step\": 1}"}};
    report.tokens = std::int64_t{1} << 40;
    report.round = 12;
    report.places = 0;
    report.saved = {AdapterId{0}, AdapterId{1}};
    report.saving_seconds = 1.5;
    report.log = {"a", "\"b\" \xff"};
    report.stopped = "signal";
    EXPECT_FALSE(report.empty());
    const WorkerReport read = worker_report_from_text(to_text(report, job));
    EXPECT_EQ(read.worker, 3);
    ASSERT_EQ(read.states.size(), 1U);
    const AdapterState& state = read.states[0].state;
    EXPECT_EQ(state.steps, 7);
    EXPECT_EQ(state.status, AdapterStatus::parked);
    EXPECT_EQ(state.last_loss, 1.0 / 3.0) << "to the bit";
    EXPECT_EQ(state.losses.values().size(), 2U);
    EXPECT_EQ(state.rungs, some_state().rungs);
    EXPECT_EQ(state.reason, "two\nlines");
    EXPECT_EQ(read.at_rung, report.at_rung);
    EXPECT_EQ(read.metrics[0].text, "{\"step\": 1}");
    EXPECT_EQ(read.tokens, report.tokens);
    EXPECT_EQ(read.places, 0);
    EXPECT_EQ(read.saved, report.saved);
    EXPECT_EQ(read.saving_seconds, report.saving_seconds);
    EXPECT_EQ(read.log.front(), "a");
    EXPECT_EQ(read.stopped, "signal");
}

TEST(WorkerMessage, DecisionsTravel) {
    const Job job = job_of_two();
    Decisions decisions;
    EXPECT_TRUE(decisions.empty());
    decisions.updates = {{AdapterId{0}, some_state()}};
    decisions.given = {{2, AdapterId{1}, "runs/a b/ckpt"}, {0, AdapterId{0}, ""}};
    decisions.ended = {AdapterId{1}};
    decisions.elapsed_seconds = 0.0;
    decisions.round = 5;
    decisions.budget_spent = true;
    decisions.stop = "why";
    decisions.over = ExitCode::some_adapters_failed;
    const Decisions read = decisions_from_text(to_text(decisions, job));
    EXPECT_EQ(read.updates.size(), 1U);
    ASSERT_EQ(read.given.size(), 2U);
    EXPECT_EQ(read.given[0].worker, 2);
    EXPECT_EQ(read.given[0].adapter, AdapterId{1});
    EXPECT_EQ(read.given[0].checkpoint, "runs/a b/ckpt");
    EXPECT_EQ(read.ended, decisions.ended);
    EXPECT_EQ(read.elapsed_seconds, 0.0);
    EXPECT_EQ(read.round, 5);
    EXPECT_TRUE(read.budget_spent);
    EXPECT_EQ(read.stop, "why");
    EXPECT_EQ(read.over, ExitCode::some_adapters_failed);
    EXPECT_FALSE(decisions_from_text(to_text(Decisions{}, job)).over.has_value());
}

TEST(WorkerMessage, OtherTextsAreErrors) {
    for (const char* text : {"", "{", "{}", "[]", "{\"worker\": \"a\"}"}) {
        EXPECT_THROW(worker_report_from_text(text), Error) << text;
        EXPECT_THROW(decisions_from_text(text), Error) << text;
    }
}

}  // namespace
}  // namespace loratrain::test

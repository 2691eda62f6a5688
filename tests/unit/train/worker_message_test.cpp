#include "train/workers/worker_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace loratrain::test {
namespace {

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
    const WorkerReport read = worker_report_from_bytes(to_bytes(report));
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
    const Decisions read = decisions_from_bytes(to_bytes(decisions));
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
    EXPECT_FALSE(decisions_from_bytes(to_bytes(Decisions{})).over.has_value());
}

TEST(WorkerMessage, OtherBytesAreErrors) {
    WorkerReport report;
    report.states = {{AdapterId{1}, some_state()}};
    const std::string good = to_bytes(report);
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_THROW(worker_report_from_bytes(good.substr(0, size)), Error) << size;
    }
    EXPECT_THROW(worker_report_from_bytes(good + "x"), Error);
    EXPECT_THROW(decisions_from_bytes(""), Error);
    report.states[0].state.steps = -1;
    EXPECT_THROW(worker_report_from_bytes(to_bytes(report)), Error);
}

}  // namespace
}  // namespace loratrain::test

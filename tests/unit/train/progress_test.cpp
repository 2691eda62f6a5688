#include "train/records/progress.h"

#include <gtest/gtest.h>

#include "support/problems.h"

namespace loratrain {
namespace {

using test::has;

/// One adapter of a hundred steps of 100 tokens.
class Progressing : public ::testing::Test {
  protected:
    Progressing() {
        job_.adapters.resize(1);
        job_.adapters[0].name = "one";
    }

    static BatchPlan batch(std::int32_t number) {
        BatchPlan batch;
        batch.round = batch.step = number;
        batch.tokens = 100;
        return batch;
    }

    static void start(ProgressLog& log, std::int32_t first, std::int32_t last) {
        Window window;
        window.first_round = first;
        for (std::int32_t i = first; i <= last; ++i) window.batches.push_back(batch(i));
        log.window_started(window);
    }

    /// What is printed when a step of a window that has started ends.
    static std::string end(ProgressLog& log, std::int32_t number, double elapsed) {
        ::testing::internal::CaptureStdout();
        const int left = 99 - number;
        log.batch_done(batch(number), 1.5, elapsed, {left, 100.0 * left});
        return ::testing::internal::GetCapturedStdout();
    }

    static std::string step(ProgressLog& log, std::int32_t number, double elapsed) {
        start(log, number, number);
        return end(log, number, elapsed);
    }

    Job job_;
};

TEST_F(Progressing, SpeedAndTimeLeft) {
    ProgressLog log(job_);
    log.training_resumed(0.0);
    EXPECT_TRUE(
        has(step(log, 0, 2.0), "round 1/100  loss  one 1.5000  50 tokens/s  3 min 18 s left"));
    EXPECT_TRUE(
        has(step(log, 1, 4.0), "round 2/100  loss  one 1.5000  50 tokens/s  3 min 16 s left"));
}

TEST_F(Progressing, TimeOfEarlierStartsAndOfPausesIsNotCounted) {
    ProgressLog log(job_);
    log.training_resumed(5000.0);
    EXPECT_TRUE(
        has(step(log, 50, 5002.0), "round 51/100  loss  one 1.5000  50 tokens/s  1 min 38 s"));
    log.training_resumed(6000.0);
    EXPECT_TRUE(
        has(step(log, 51, 6002.0), "round 52/100  loss  one 1.5000  50 tokens/s  1 min 36 s"));
}

TEST_F(Progressing, TheNextWindowStartsWhileTheFirstOneTrains) {
    job_.logging.every_steps = 10;
    ProgressLog log(job_);
    log.training_resumed(0.0);
    start(log, 0, 9);
    for (int i = 0; i < 9; ++i) EXPECT_EQ(end(log, i, 2.0 * (i + 1)), "");
    start(log, 10, 19);
    const std::string line = end(log, 9, 20.0);
    EXPECT_TRUE(has(line, "round 10/100  loss  one 1.5000  50 tokens/s  3 min 0 s left")) << line;
}

TEST_F(Progressing, OnlyWhoTrainedIsInTheLine) {
    job_.adapters.resize(12);
    for (std::size_t i = 0; i < 12; ++i) job_.adapters[i].name = cat("a", i);
    ProgressLog log(job_);
    log.training_resumed(0.0);
    const auto line = [&](std::int32_t round, std::size_t first, std::size_t last) {
        Window window;
        for (std::size_t i = first; i < last; ++i) {
            window.batches.push_back(batch(round));
            window.batches.back().adapter = static_cast<AdapterId>(i);
        }
        log.window_started(window);
        ::testing::internal::CaptureStdout();
        for (const BatchPlan& b : window.batches) log.batch_done(b, 1.5, 1.0 + round, {9, 900.0});
        return ::testing::internal::GetCapturedStdout();
    };
    EXPECT_TRUE(has(line(0, 0, 2), "loss  a0 1.5000  a1 1.5000  ")) << "both";
    EXPECT_TRUE(has(line(1, 1, 2), "loss  a1 1.5000  ")) << "a0 has stopped";
    EXPECT_TRUE(has(line(2, 2, 12), "a9 1.5000  and 2 more  ")) << "the last of eight";
}

TEST_F(Progressing, OneSlowStepDoesNotMoveTheEnd) {
    ProgressLog log(job_);
    log.training_resumed(0.0);
    for (int i = 0; i < 40; ++i) step(log, i, 1.0 + i);
    const std::string slow = step(log, 40, 43.0);
    EXPECT_TRUE(has(slow, "33 tokens/s  1 min ")) << slow;
}

TEST_F(Progressing, TheClosingTableNamesTheAccuracyOfTheLosses) {
    RunState state;
    state.adapters.resize(1);
    EXPECT_TRUE(has(ProgressLog::closing_table(job_, state), "  exact match\n"));
    job_.adapters[0].loss.loss = Loss::dpo;
    EXPECT_TRUE(has(ProgressLog::closing_table(job_, state), "  reward accuracy\n"));
}

TEST_F(Progressing, TheClosingTableOfManyAdaptersBeginsWithThoseThatAreNotDone) {
    job_.adapters.clear();
    job_.run.dir = "runs/a";
    for (int i = 0; i < 100; ++i) job_.adapters.emplace_back().name = cat("m", i, ".");
    RunState state;
    state.adapters.resize(100);
    for (AdapterState& adapter : state.adapters) adapter.status = AdapterStatus::done;
    state.adapters[97].status = AdapterStatus::failed;
    const std::string table = ProgressLog::closing_table(job_, state);
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 64 + 1);
    EXPECT_LT(table.find("m97."), table.find("m0."));
    EXPECT_TRUE(has(table, "m62."));
    EXPECT_EQ(table.find("m63."), std::string::npos);
    EXPECT_TRUE(has(table, "  and 36 more: runs/a/results.csv\n"));
    job_.adapters.resize(64);
    state.adapters.resize(64);
    const std::string all = ProgressLog::closing_table(job_, state);
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1 + 64);
}

}  // namespace
}  // namespace loratrain

#include "watch/peer_judge.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

using activity::Task;

constexpr double interval = 2.0;

Beat computing(std::uint64_t progress) {
    return {{Task::backward, false, false, 3}, progress};
}

Beat on_gpu(std::uint64_t progress) {
    return {{Task::forward, true, false, 7}, progress};
}

Beat waiting(std::uint64_t progress) {
    return {{Task::receive_input, false, true, 4}, progress};
}

class PeerJudgeTest : public ::testing::Test {
  protected:
    /// Lets `seconds` pass in ticks; before each tick, calls beat(). The fault, if there is one,
    /// ends it.
    template <class BeatAll>
    std::optional<PeerFault> pass(double seconds, BeatAll beat) {
        double passed = 0.0;
        while (passed < seconds) {
            passed += interval;
            beat();
            if (auto fault = judge_.pass(interval, 2 * interval)) return fault;
        }
        return std::nullopt;
    }

    PeerJudge judge_{{0, 1, 2}, PeerLimits{30.0, 2.0, 8.0, 60.0, 60.0}};
    std::uint64_t progress_ = 0;
};

TEST_F(PeerJudgeTest, BeatsKeepTheJobAlive) {
    EXPECT_FALSE(pass(1000.0, [&] {
        ++progress_;
        for (const int rank : {0, 1, 2}) judge_.heard(rank, waiting(progress_));
    }));
}

TEST_F(PeerJudgeTest, SilenceIsFoundWithinTheLimitAndNamesTheLastAction) {
    for (const int rank : {0, 1, 2}) judge_.heard(rank, computing(1));
    const auto others = [&] {
        judge_.heard(0, waiting(++progress_));
        judge_.heard(2, waiting(progress_));
    };
    EXPECT_FALSE(pass(28.0, others));
    const auto fault = pass(4.0, others);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->rank, 1);
    EXPECT_EQ(fault->reason, "no heartbeat for 30 s, last seen in backward of microbatch 3");
}

TEST_F(PeerJudgeTest, TellsWhoElseIsSilent) {
    const auto beat_of_0 = [&] { judge_.heard(0, computing(++progress_)); };
    judge_.heard(1, computing(1));
    EXPECT_FALSE(pass(10.0, beat_of_0));
    judge_.heard(2, computing(1));
    ASSERT_TRUE(pass(30.0, beat_of_0));
    EXPECT_EQ(judge_.silent_ranks(15.0), (std::vector<int>{1, 2}));
    EXPECT_EQ(judge_.silent_ranks(25.0), (std::vector<int>{1}));
}

TEST_F(PeerJudgeTest, ARankNeverHeardOfIsSilentToo) {
    const auto fault = pass(40.0, [&] {
        judge_.heard(0, computing(1));
        judge_.heard(1, computing(1));
    });
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->rank, 2);
    EXPECT_EQ(fault->reason, "no heartbeat for 30 s, last seen in setting up");
}

TEST_F(PeerJudgeTest, ABrokenConnectionIsFoundAfterAMoment) {
    judge_.heard(1, computing(1));
    judge_.lost(1);
    EXPECT_FALSE(judge_.pass(1.0, 4.0));
    const auto fault = judge_.pass(1.5, 4.0);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->rank, 1);
    EXPECT_EQ(fault->reason, "ended without a word, last seen in backward of microbatch 3");
}

TEST_F(PeerJudgeTest, TheLauncherHasTimeToEndTheJobOfWhoFails) {
    judge_.heard(1, computing(1));
    judge_.failed(1);
    judge_.lost(1);
    EXPECT_FALSE(judge_.pass(3.9, 4.0));
    EXPECT_FALSE(judge_.pass(3.9, 4.0));
    const auto fault = judge_.pass(1.0, 4.0);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->rank, 1);
    EXPECT_EQ(fault->reason, "ended with an error, last seen in backward of microbatch 3");
}

TEST_F(PeerJudgeTest, WhoSaidGoodbyeMayGo) {
    judge_.left(1);
    judge_.lost(1);
    EXPECT_FALSE(pass(1000.0, [&] {
        judge_.heard(0, computing(1));
        judge_.heard(2, computing(1));
        judge_.heard(1, computing(1));
    }));
}

TEST_F(PeerJudgeTest, ComputingOnTheCpuMayTakeAnyTime) {
    EXPECT_FALSE(pass(100000.0, [&] {
        judge_.heard(0, waiting(1));
        judge_.heard(1, computing(1));
        judge_.heard(2, waiting(1));
    }));
}

TEST_F(PeerJudgeTest, AGpuWithoutProgressIsStuck) {
    const auto beat = [&] {
        judge_.heard(0, waiting(++progress_));
        judge_.heard(1, on_gpu(5));
        judge_.heard(2, on_gpu(progress_));
    };
    EXPECT_FALSE(pass(58.0, beat));
    const auto fault = pass(6.0, beat);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->rank, 1);
    EXPECT_EQ(fault->reason,
              "no progress for 60 s in forward of microbatch 7: its GPU or a link to another GPU "
              "hangs");
}

TEST_F(PeerJudgeTest, AGpuThatHasProvedSlowGetsMoreTime) {
    PeerJudge judge({0, 1}, PeerLimits{30.0, 2.0, 8.0, 60.0, 60.0});
    const auto hold = [&](double seconds, std::uint64_t progress) {
        std::optional<PeerFault> fault;
        for (double t = 0.0; t < seconds && !fault; t += interval) {
            judge.heard(0, computing(1));
            judge.heard(1, on_gpu(progress));
            fault = judge.pass(interval, 2 * interval);
        }
        return fault;
    };
    EXPECT_FALSE(hold(50.0, 1));
    EXPECT_FALSE(hold(200.0, 2));
    EXPECT_TRUE(hold(100.0, 2));
}

TEST_F(PeerJudgeTest, PausesElsewhereDoNotMakeAGpuSlow) {
    PeerJudge judge({0, 1}, PeerLimits{30.0, 2.0, 8.0, 0.0, 60.0});
    std::optional<PeerFault> fault;
    double last = 0.0;
    for (double t = 0.0; t < 500.0 && !fault; t += interval) {
        judge.heard(0, computing(1));
        judge.heard(1, t < 300.0 ? computing(1) : on_gpu(2));
        fault = judge.pass(interval, 2 * interval);
        last = t;
    }
    EXPECT_TRUE(fault);
    EXPECT_NEAR(last, 360.0, 2 * interval);
}

TEST_F(PeerJudgeTest, AllWaitingForEachOtherIsADeadlock) {
    const auto beat = [&] {
        for (const int rank : {0, 1, 2}) judge_.heard(rank, waiting(9));
    };
    EXPECT_FALSE(pass(58.0, beat));
    const auto fault = pass(6.0, beat);
    ASSERT_TRUE(fault);
    EXPECT_NE(fault->reason.find("waits in receiving the input of microbatch 4 for 60 s"),
              std::string::npos)
        << fault->reason;
}

TEST_F(PeerJudgeTest, OneOfThemMovingIsNoDeadlock) {
    EXPECT_FALSE(pass(1000.0, [&] {
        judge_.heard(0, waiting(9));
        judge_.heard(1, waiting(9));
        judge_.heard(2, waiting(++progress_));
    }));
}

TEST_F(PeerJudgeTest, AWorkerMayBeDeadlockedAlone) {
    PeerLimits limits{30.0, 2.0, 8.0, 60.0, 60.0};
    limits.worker_ranks = 2;
    judge_ = PeerJudge({0, 1, 2, 3}, limits);
    const auto beat = [&](Task task) {
        ++progress_;
        judge_.heard(0, computing(progress_));
        judge_.heard(1, waiting(9));
        judge_.heard(2, {{task, false, true, 4}, 9});
        judge_.heard(3, waiting(9));
    };
    EXPECT_FALSE(pass(1000.0, [&] { beat(Task::set_up); })) << "workers wait for each other then";
    const auto fault = pass(6.0, [&] { beat(Task::receive_gradient); });
    ASSERT_TRUE(fault);
    EXPECT_GE(fault->rank, 2);
    EXPECT_NE(fault->reason.find("every other rank of its worker"), std::string::npos);
}

TEST_F(PeerJudgeTest, TimeAsleepDoesNotCount) {
    for (const int rank : {0, 1, 2}) judge_.heard(rank, computing(1));
    EXPECT_FALSE(judge_.pass(3600.0, 4.0));
    for (const int rank : {0, 1, 2}) judge_.heard(rank, computing(2));
    EXPECT_FALSE(judge_.pass(2.0, 4.0));
}

TEST_F(PeerJudgeTest, ALimitOfZeroIsOff) {
    PeerJudge judge({0}, PeerLimits{0.0, 2.0, 8.0, 0.0, 0.0});
    for (int i = 0; i < 1000; ++i) {
        if (i == 0) judge.heard(0, on_gpu(1));
        EXPECT_FALSE(judge.pass(interval, interval));
    }
}

TEST(Beat, TravelsAsALine) {
    const Beat beat{{Task::step, true, false, 12}, 1234567890123};
    const std::optional<Beat> back = beat_from_line(to_line(beat));
    ASSERT_TRUE(back);
    EXPECT_EQ(to_string(back->state), "optimizer step of batch 12");
    EXPECT_TRUE(back->state.on_device);
    EXPECT_FALSE(back->state.waiting);
    EXPECT_EQ(back->progress, beat.progress);
    EXPECT_FALSE(beat_from_line("bye"));
    EXPECT_FALSE(beat_from_line("beat 1 2"));
    EXPECT_FALSE(beat_from_line(""));
}

}  // namespace
}  // namespace loratrain

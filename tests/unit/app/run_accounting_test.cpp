#include "session/run_accounting.h"

#include <gtest/gtest.h>

#include <numeric>

#include "config/model_presets.h"

namespace loratrain {
namespace {

double seconds_of(const RankAccount& rank, RunPhase phase) {
    return rank.seconds[static_cast<std::size_t>(phase)];
}

PhaseTimes times_of_session() {
    PhaseTimes times;
    times.add("files", 0.5);
    times.add(planning_phase, 1.0);
    times.add(cost_phase, 2.0);
    times.add("weights", 1.5);
    times.add(training_phase, 10.0);
    return times;
}

TEST(RankAccounts, EveryPhaseAddsUpToTheWallTime) {
    PhaseAccount work;
    work.seconds[static_cast<std::size_t>(RunPhase::forward)] = 3.0;
    work.seconds[static_cast<std::size_t>(RunPhase::backward)] = 5.0;
    work.seconds[static_cast<std::size_t>(RunPhase::planning)] = 0.5;
    work.seconds[static_cast<std::size_t>(RunPhase::other)] = 0.25;
    work.forward = {1.0, 2.0, 0.0};
    const RankAccount rank = account_of_rank(times_of_session(), work);
    EXPECT_EQ(rank.wall_seconds, 15.0);
    EXPECT_EQ(rank.training_seconds, 10.0);
    EXPECT_EQ(seconds_of(rank, RunPhase::start), 2.0);
    EXPECT_EQ(seconds_of(rank, RunPhase::planning), 3.5);
    EXPECT_EQ(seconds_of(rank, RunPhase::other), 1.5) << "with what no clock of the stage saw";
    EXPECT_EQ(std::accumulate(rank.seconds.begin(), rank.seconds.end(), 0.0), 15.0);
    EXPECT_EQ(rank.forward.attention, 1.0);
    EXPECT_EQ(rank.forward.sum(), 3.0);
}

TEST(RankAccounts, AStreamThatIsALittleLongerThanTheHostsTimeLeavesNothingNegative) {
    PhaseAccount work;
    work.seconds[static_cast<std::size_t>(RunPhase::forward)] = 10.001;
    const RankAccount rank = account_of_rank(times_of_session(), work);
    EXPECT_EQ(seconds_of(rank, RunPhase::other), 0.0);
}

TEST(RunAccounts, SpreadOverRanksAndCountEachGpuOnce) {
    Plan plan;
    plan.model = *model_preset("llama-3.1-8b");
    plan.compute = DType::bf16;
    RankAccount first;
    first.wall_seconds = 10.0;
    first.training_seconds = 8.0;
    first.seconds[static_cast<std::size_t>(RunPhase::forward)] = 2.0;
    first.tokens = 100.0;
    first.squares = 100.0 * 1000.0;
    first.device = {"NVIDIA H200", "node1 0000:1B:00.0"};
    first.joules = 50.0;
    RankAccount second = first;
    second.tokens = second.squares = 0.0;
    second.seconds[static_cast<std::size_t>(RunPhase::forward)] = 4.0;
    RankAccount third = second;
    third.device.place = "node2 0000:1B:00.0";
    third.joules = 70.0;
    RankAccount fourth = third;
    fourth.joules.reset();
    const RunAccount account = account_of_run({first, second, third, fourth}, plan, 90.0);
    EXPECT_EQ(account.ranks, 4);
    EXPECT_EQ(account.of(RunPhase::forward).least, 2.0);
    EXPECT_EQ(account.of(RunPhase::forward).mean, 3.5);
    EXPECT_EQ(account.of(RunPhase::forward).most, 4.0);
    EXPECT_EQ(account.tokens, 90.0) << "without padding";
    const double weights =
        4.0 * (32.0 * (2 * 4096.0 * 4096.0 + 2 * 4096.0 * 1024.0 + 3 * 4096.0 * 14336.0) +
               128256.0 * 4096.0);
    EXPECT_DOUBLE_EQ(account.useful_flop, 90.0 * (weights + 6.0 * 32.0 * 4096.0 * 1000.0));
    EXPECT_EQ(account.peak_flop_rate, 989e12);
    EXPECT_EQ(account.sensors, 2);
    EXPECT_EQ(account.joules, 120.0);
}

}  // namespace
}  // namespace loratrain

#include "plan/rungs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace loratrain::plan_test {

namespace {

using Trials = std::set<std::size_t>;

SweepJob rules(int rungs, int factor) {
    SweepJob sweep;
    sweep.scheduler = TrialScheduler::halving;
    sweep.rungs = rungs;
    sweep.reduction_factor = factor;
    return sweep;
}

/// Values of every trial at every rung but the last.
using Table = std::vector<std::vector<double>>;

/// Those that the synchronous rule trains to their end.
Trials synchronous_survivors(const SweepJob& sweep, const Table& values) {
    std::vector<std::size_t> alive(values.size());
    std::iota(alive.begin(), alive.end(), 0);
    for (std::size_t rung = 0; rung + 1 < static_cast<std::size_t>(sweep.rungs); ++rung) {
        std::stable_sort(alive.begin(), alive.end(), [&](std::size_t a, std::size_t b) {
            return compared(values[a][rung]) < compared(values[b][rung]);
        });
        const auto factor = static_cast<std::size_t>(sweep.reduction_factor);
        alive.resize(std::max<std::size_t>(1, alive.size() / factor));
        std::sort(alive.begin(), alive.end());
    }
    return {alive.begin(), alive.end()};
}

/// Until none is left; a trial may have values of several rungs to be judged at.
void apply_decisions(const SweepJob& sweep, std::vector<TrialRecord>& records) {
    for (bool again = true; again;) {
        again = false;
        const std::vector<RungDecision> decisions = judge_halving(sweep, records);
        for (std::size_t t = 0; t < records.size(); ++t) {
            TrialRecord& record = records[t];
            const bool judged = record.values.size() == static_cast<std::size_t>(record.promoted);
            if (judged || record.pruned || record.gone) continue;
            if (decisions[t] == RungDecision::promote) ++record.promoted;
            if (decisions[t] == RungDecision::prune) record.pruned = true;
            again = again || decisions[t] == RungDecision::promote;
        }
    }
}

/// Trials that may move come to their next rung in an order drawn by `draw`; checks that nobody is
/// left waiting at the end. `fails`: a trial that fails before its first rung. `speculate`: trials
/// move without a decision too, but not to their end.
Trials survivors_in_any_order(const SweepJob& sweep, const Table& values, std::mt19937& draw,
                              std::size_t fails, bool speculate) {
    std::vector<TrialRecord> records(values.size());
    const auto last = static_cast<std::size_t>(sweep.rungs) - 1;
    Trials survivors;
    for (;;) {
        std::vector<std::size_t> movable;
        for (std::size_t t = 0; t < records.size(); ++t) {
            const TrialRecord& record = records[t];
            const bool free = record.values.size() == static_cast<std::size_t>(record.promoted);
            const bool early = speculate && !free && record.values.size() < last;
            if (!record.gone && !record.pruned && (free || early) && !survivors.contains(t)) {
                movable.push_back(t);
            }
        }
        if (movable.empty()) break;
        const std::size_t t = movable[draw() % movable.size()];
        if (t == fails) {
            records[t].gone = true;
        } else if (records[t].values.size() == last) {
            survivors.insert(t);
            continue;
        } else {
            records[t].values.push_back(values[t][records[t].values.size()]);
        }
        apply_decisions(sweep, records);
    }
    for (std::size_t t = 0; t < records.size(); ++t) {
        const TrialRecord& record = records[t];
        EXPECT_TRUE(record.gone || record.pruned || survivors.contains(t)) << t << " waits";
    }
    return survivors;
}

Table drawn_values(std::size_t trials, int rungs, std::mt19937& draw) {
    Table table(trials);
    for (auto& values : table) {
        for (int rung = 0; rung + 1 < rungs; ++rung) {
            const unsigned drawn = draw() % 12;  // ties are frequent
            values.push_back(drawn == 0 ? std::nan("") : 0.1 * drawn);
        }
    }
    return table;
}

}  // namespace

TEST(Rungs, LieAtSharesOfATrialsOwnLength) {
    EXPECT_EQ(rung_step(rules(3, 3), 27, 0), 3);
    EXPECT_EQ(rung_step(rules(3, 3), 27, 1), 9);
    EXPECT_EQ(rung_step(rules(3, 3), 27, 2), 27);
    EXPECT_EQ(rung_step(rules(3, 3), 100, 0), 12);
    EXPECT_EQ(rung_step(rules(5, 4), 2, 0), 1);
    EXPECT_EQ(rung_step(rules(1, 3), 7, 0), 7);
}

TEST(Rungs, LieBehindTheWarmup) {
    EXPECT_EQ(rung_step(rules(3, 3), 9, 0, 0), 1);
    EXPECT_EQ(rung_step(rules(3, 3), 9, 0, 1), 2);
    EXPECT_EQ(rung_step(rules(3, 3), 9, 1, 1), 3);
    EXPECT_EQ(rung_step(rules(3, 3), 9, 0, 5), 6);
    EXPECT_EQ(rung_step(rules(3, 3), 9, 1, 5), 6) << "two rungs at one step";
    EXPECT_EQ(rung_step(rules(3, 3), 9, 0, 9), 9);
    EXPECT_EQ(rung_step(rules(3, 3), 9, 2, 5), 9);
    AdapterJob adapter;
    adapter.warmup_steps = 0.1;
    EXPECT_EQ(warmup_steps(adapter, 9), 1);
    adapter.lr_scheduler_type = LrSchedule::constant;
    EXPECT_EQ(warmup_steps(adapter, 9), 0);
}

TEST(Rungs, SurvivorsAreThoseOfTheSynchronousRuleInAnyOrder) {
    std::mt19937 draw(17);
    for (int repetition = 0; repetition < 600; ++repetition) {
        const SweepJob sweep =
            rules(1 + static_cast<int>(draw() % 4), 2 + static_cast<int>(draw() % 3));
        const std::size_t trials = 1 + draw() % 13;
        Table values = drawn_values(trials, sweep.rungs, draw);
        const std::size_t fails = draw() % (2 * trials);  // none in half of the cases
        if (fails < trials) std::fill(values[fails].begin(), values[fails].end(), std::nan(""));
        Trials expected = synchronous_survivors(sweep, values);
        if (fails < trials) expected.erase(fails);
        for (int order = 0; order < 6; ++order) {
            ASSERT_EQ(survivors_in_any_order(sweep, values, draw, fails, order % 2 == 1), expected)
                << "repetition " << repetition << ", order " << order;
        }
    }
}

TEST(Rungs, PromotedOnlyOnceSureAndPrunedOnceSure) {
    const SweepJob sweep = rules(2, 3);  // six trials, two places
    std::vector<TrialRecord> records(6);
    const auto decisions = [&] { return judge_halving(sweep, records); };
    for (std::size_t t = 0; t < 4; ++t) records[t].values = {static_cast<double>(t)};
    EXPECT_EQ(decisions()[0], RungDecision::wait) << "two that are to come may be better";
    EXPECT_EQ(decisions()[1], RungDecision::wait);
    EXPECT_EQ(decisions()[2], RungDecision::prune);
    EXPECT_EQ(decisions()[4], RungDecision::wait);
    records[4].values = {9.0};
    EXPECT_EQ(decisions()[0], RungDecision::promote);
    EXPECT_EQ(decisions()[1], RungDecision::wait);
}

TEST(Rungs, SixDigitsCountAndEqualOnesGoByOrder) {
    const SweepJob sweep = rules(2, 2);
    std::vector<TrialRecord> records(2);
    records[0].values = {1.0000004};
    records[1].values = {1.0000001};
    EXPECT_EQ(judge_halving(sweep, records)[0], RungDecision::promote);
    EXPECT_EQ(judge_halving(sweep, records)[1], RungDecision::prune);
}

TEST(Rungs, DecisionsStandWhenTrialsAreAdded) {
    const SweepJob sweep = rules(2, 3);
    std::vector<TrialRecord> records(9);
    records[0].values = {5.0};
    records[0].promoted = 1;
    records[1].values = {0.1};
    records[1].pruned = true;
    for (std::size_t t = 2; t < 9; ++t) records[t].values = {static_cast<double>(t)};
    const std::vector<RungDecision> decisions = judge_halving(sweep, records);
    EXPECT_EQ(decisions[0], RungDecision::wait);
    EXPECT_EQ(std::count(decisions.begin(), decisions.end(), RungDecision::promote), 2);
    EXPECT_EQ(decisions[1], RungDecision::prune);
}

TEST(Rungs, AshaLetsTheBestOfThoseSoFarGoOn) {
    SweepJob sweep = rules(3, 3);
    sweep.scheduler = TrialScheduler::asha;
    EXPECT_EQ(judge_at_once(sweep, {}, 9.0), RungDecision::promote);
    const std::vector<double> five{1.0, 2.0, 3.0, 4.0, 5.0};
    EXPECT_EQ(judge_at_once(sweep, five, 1.5), RungDecision::promote) << "second of six";
    EXPECT_EQ(judge_at_once(sweep, five, 2.5), RungDecision::prune);
    EXPECT_EQ(judge_at_once(sweep, five, std::nan("")), RungDecision::prune);
}

TEST(Rungs, MedianNeedsThreeOthers) {
    SweepJob sweep = rules(3, 3);
    sweep.scheduler = TrialScheduler::median;
    EXPECT_EQ(judge_at_once(sweep, std::vector<double>{1.0, 2.0}, 9.0), RungDecision::promote);
    EXPECT_EQ(judge_at_once(sweep, std::vector<double>{1.0, 2.0, 3.0}, 2.0), RungDecision::promote);
    EXPECT_EQ(judge_at_once(sweep, std::vector<double>{1.0, 2.0, 3.0}, 2.1), RungDecision::prune);
}

TEST(RankTrials, CompleteThenLaterRungsThenFailed) {
    const auto id = [](int number) { return AdapterId{number}; };
    const auto ranked = rank_trials({{id(0), TrialStage::failed, 2, 0.1},
                                     {id(1), TrialStage::partial, 1, 0.1},
                                     {id(2), TrialStage::complete, 2, 0.5},
                                     {id(3), TrialStage::partial, 2, 0.9},
                                     {id(4), TrialStage::complete, 2, std::nan("")},
                                     {id(5), TrialStage::complete, 0, 0.5}});
    std::vector<int> order;
    for (const TrialStanding& trial : ranked) order.push_back(number(trial.trial));
    EXPECT_EQ(order, (std::vector<int>{2, 5, 4, 3, 1, 0}));
}

}  // namespace loratrain::plan_test

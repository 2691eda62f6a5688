#include "train/workers/dispatcher.h"

#include <algorithm>
#include <set>
#include <thread>

#include "plan/sweep/worker_queues.h"

#include "unit/train/text_lines.h"
#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

/// The dispatcher of two workers that a test plays: worker 0 beside it, worker 1 over the channel.
class RunDispatcher : public ::testing::Test, protected WorkerRun {
  protected:
    void SetUp() override { job.parallel.assignment = Assignment::each; }

    void begin() {
        make();
        ledger.emplace(job, plan, datasets, 2, StatusView{});
        dispatcher.emplace(Dispatcher::Parts{job, plan, datasets, &lines.root(), 2, 2, {}},
                           *ledger);
        former.state.adapters.resize(job.adapters.size());
        former.checkpoints.resize(job.adapters.size());
        dispatcher->begin(former);
        collect();
    }
    void add_two_of_which_one_goes_on() {
        add_trials(2, 8);
        job.sweep->scheduler = TrialScheduler::halving;
        job.sweep->rungs = 2;
        job.sweep->reduction_factor = 2;
    }
    /// What all workers get; both get the same.
    void collect() {
        dispatcher->serve();
        last = {};
        while (const std::optional<std::string> text = lines.other().arrived()) {
            const Decisions next = decisions_from_bytes(*text);
            const std::optional<Decisions> own = dispatcher->next_of_own();
            ASSERT_TRUE(own);
            EXPECT_EQ(to_bytes(next), to_bytes(*own));
            last.given.insert(last.given.end(), next.given.begin(), next.given.end());
            last.returned.insert(last.returned.end(), next.returned.begin(), next.returned.end());
            last.ended.insert(last.ended.end(), next.ended.begin(), next.ended.end());
            last.updates.insert(last.updates.end(), next.updates.begin(), next.updates.end());
            last.budget_spent = last.budget_spent || next.budget_spent;
            if (!next.stop.empty()) last.stop = next.stop;
            if (next.over) last.over = next.over;
            all_given.insert(all_given.end(), next.given.begin(), next.given.end());
        }
    }
    void report(WorkerReport from) {
        if (from.worker == 0) {
            dispatcher->take(from);
        } else {
            lines.other().send_report(to_bytes(from));
        }
        collect();
    }
    void ask(int worker, int places) {
        WorkerReport from;
        from.worker = worker;
        from.places = places;
        report(from);
    }
    AdapterState at(std::int32_t steps, AdapterStatus now = AdapterStatus::running) const {
        AdapterState state;
        state.steps = steps;
        state.status = now;
        take_evaluation(1.0 / (steps + 1), 0.0, state);
        return state;
    }
    void report(int worker, AdapterId a, const AdapterState& state, std::int64_t tokens = 0) {
        WorkerReport from;
        from.worker = worker;
        from.states = {{a, state}};
        from.tokens = tokens;
        report(from);
    }
    std::vector<AdapterId> given_to(int worker) const {
        std::vector<AdapterId> adapters;
        for (const GivenAdapter& g : last.given) {
            if (g.worker == worker) adapters.push_back(g.adapter);
        }
        return adapters;
    }
    AdapterStatus known(AdapterId a) const { return dispatcher->state().adapters[index(a)].status; }
    /// Orders of people are looked for five times a second.
    void look() {
        std::this_thread::sleep_for(std::chrono::milliseconds(210));
        collect();
    }
    /// Each worker has two long adapters, those of worker 1 have ended; steps take long.
    void let_one_have_all() {
        for (int i = 0; i < 4; ++i) add(10000);
        begin();
        ask(0, 2);
        const std::vector<AdapterId> own = given_to(0);
        ASSERT_EQ(own.size(), 2U);
        stays = own[0];
        moves = own[1];
        ask(1, 2);
        for (const AdapterId a : given_to(1)) report(1, a, at(10000, AdapterStatus::done));
        report(0, stays, at(1), 1);
        report(0, moves, at(1), 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // what is left takes hours
        ask(1, 1);
        ASSERT_EQ(last.returned.size(), 1U);
    }

    AdapterId stays{};
    AdapterId moves{};
    TextLines lines;
    FormerRun former;
    std::optional<RunLedger> ledger;
    std::optional<Dispatcher> dispatcher;
    Decisions last;  ///< since collect() or what calls it
    std::vector<GivenAdapter> all_given;
};

TEST_F(RunDispatcher, GivesAsManyAsThereAreFreePlaces) {
    for (int i = 0; i < 4; ++i) add(8);
    begin();
    EXPECT_TRUE(last.given.empty()) << "nobody has asked";
    ask(0, 1);
    EXPECT_EQ(given_to(0).size(), 1U);
    ask(1, 3);
    EXPECT_EQ(given_to(1).size(), 2U) << "its own queue";
    EXPECT_EQ(given_to(0).size(), 0U);
}

TEST_F(RunDispatcher, APackedJobIsGivenWholeAndHoldsItsWorker) {
    job.parallel.assignment = Assignment::plora;
    for (int i = 0; i < 6; ++i) add(i < 3 ? 8 : 80);
    begin();
    const std::vector<std::int32_t> left{8, 8, 8, 80, 80, 80};
    const auto jobs = queue_for_workers(job, plan, datasets, left, 2).packed_jobs;
    ASSERT_FALSE(jobs.empty());
    std::size_t given = 0;
    ask(0, 1);
    for (const std::vector<AdapterId>& members : jobs) {
        ASSERT_EQ(given_to(0), members) << "once all before have ended";
        given += members.size();
        for (const AdapterId a : members) {
            ask(0, 4);
            EXPECT_TRUE(last.given.empty()) << "another of the job trains";
            report(0, a, at(left[index(a)], AdapterStatus::done));
        }
    }
    EXPECT_EQ(given, 6U);
}

TEST_F(RunDispatcher, NobodyIsGivenTwice) {
    for (int i = 0; i < 5; ++i) add(8 + i);
    begin();
    std::set<AdapterId> given;
    for (int i = 0; i < 6; ++i) {
        ask(i % 2, 1);
        for (const GivenAdapter& g : last.given) {
            EXPECT_TRUE(given.insert(g.adapter).second) << number(g.adapter);
        }
    }
    EXPECT_EQ(given.size(), 5U);
}

TEST_F(RunDispatcher, AWorkerWithNothingLeftGetsTheLastOfTheOthersQueue) {
    for (int i = 0; i < 4; ++i) add(8);
    begin();
    ask(1, 2);
    const std::vector<AdapterId> own = given_to(1);
    ASSERT_EQ(own.size(), 2U);
    for (const AdapterId a : own) report(1, a, at(8, AdapterStatus::done));
    ask(1, 1);
    EXPECT_EQ(given_to(1).size(), 1U);
}

TEST_F(RunDispatcher, WhatHasEndedIsRecordedAndSentToAll) {
    add({8, 8});
    begin();
    ask(0, 1);
    const AdapterId given = given_to(0).front();
    report(0, given, at(8, AdapterStatus::done));
    ASSERT_EQ(last.updates.size(), 1U);
    EXPECT_EQ(last.updates[0].adapter, given);
    EXPECT_EQ(last.updates[0].state.status, AdapterStatus::done);
    EXPECT_TRUE(has(folder.path("ckpt/ended.json")));
    report(0, given, at(3));
    EXPECT_EQ(known(given), AdapterStatus::done) << "no later report takes it back";
}

TEST_F(RunDispatcher, ATrialThatItPrunesHasEnded) {
    add_two_of_which_one_goes_on();
    begin();
    ask(0, 2);
    ask(1, 2);
    WorkerReport from;
    for (const AdapterId a : {first, second}) {
        from.states.push_back({a, at(a == first ? 4 : 2, AdapterStatus::parked)});
        from.at_rung.push_back(a);
    }
    report(from);
    EXPECT_EQ(known(second), AdapterStatus::pruned) << "the first came to less";
    EXPECT_FALSE(is_unfinished(last.updates.back().state.status));
    report(0, first, at(8, AdapterStatus::done));
    collect();
    EXPECT_EQ(last.over, ExitCode::done);
}

TEST_F(RunDispatcher, APrunedTrialWhoseExportIsWantedHasEndedOnceItsWorkerSaysSo) {
    add_two_of_which_one_goes_on();
    job.sweep->exports = SweepExport::all;
    begin();
    ask(0, 1);
    ask(1, 1);
    for (const GivenAdapter& given : all_given) {
        WorkerReport from;
        from.worker = given.worker;
        const std::int32_t steps = given.adapter == first ? 4 : 2;
        from.states = {{given.adapter, at(steps, AdapterStatus::parked)}};
        from.at_rung = {given.adapter};
        report(from);
    }
    EXPECT_EQ(known(second), AdapterStatus::pruned);
    EXPECT_EQ(last.updates.back().state.status, AdapterStatus::pruned) << "its worker hears of it";
    report(0, first, at(8, AdapterStatus::done));
    collect();
    collect();
    EXPECT_FALSE(last.over) << "a kill now would lose the export";
    report(1, second, at(2, AdapterStatus::pruned));
    collect();
    EXPECT_EQ(last.over, ExitCode::done);
}

TEST_F(RunDispatcher, TheRunIsOverWhenAllHaveEnded) {
    add({8, 8});
    begin();
    ask(0, 2);
    report(0, first, at(8, AdapterStatus::done));
    EXPECT_FALSE(last.over);
    report(0, second, at(5, AdapterStatus::failed));
    collect();
    EXPECT_EQ(last.over.value_or(ExitCode::error), ExitCode::some_adapters_failed);
}

// ---- orders of people

TEST_F(RunDispatcher, AStopGoesToTheWorkerThatHasTheAdapter) {
    add({8, 8});
    begin();
    ask(1, 1);
    const AdapterId given = given_to(1).front();
    const AdapterId free = given == first ? second : first;
    put(name(given) + ".stop");
    put(name(free) + ".stop");
    put("nobody.stop");
    look();
    EXPECT_EQ(last.ended, (std::vector<AdapterId>{given}));
    EXPECT_EQ(known(free), AdapterStatus::stopped) << "no worker has it";
    EXPECT_TRUE(has(folder.path("inbox/rejected/nobody.stop")));
    EXPECT_FALSE(has(folder.path("inbox/" + name(free) + ".stop")));
    EXPECT_TRUE(has(folder.path("inbox/" + name(given) + ".stop"))) << "its worker obeys first";
    look();
    EXPECT_TRUE(last.ended.empty()) << "it is reported once";
    report(1, given, at(4, AdapterStatus::stopped));
    EXPECT_FALSE(has(folder.path("inbox/" + name(given) + ".stop")));
}

TEST_F(RunDispatcher, OneWorkerThatStopsStopsAll) {
    add({8, 8});
    begin();
    WorkerReport from;
    from.worker = 1;
    from.stopped = "signal SIGTERM received";
    report(from);
    EXPECT_EQ(last.stop, "signal SIGTERM received");
    EXPECT_FALSE(last.over) << "the other one saves first";
    ask(0, 2);
    EXPECT_TRUE(last.given.empty());
    from.worker = 0;
    report(from);
    collect();
    EXPECT_EQ(dispatcher->stop_reason(), "signal SIGTERM received");
}

TEST_F(RunDispatcher, WhenAllHaveStoppedTheRunIsToBeContinued) {
    add(8);
    begin();
    for (const int worker : {0, 1}) {
        WorkerReport from;
        from.worker = worker;
        from.stopped = "why";
        report(from);
    }
    EXPECT_EQ(last.over.value_or(ExitCode::done), ExitCode::stopped_resume_me);
}

TEST_F(RunDispatcher, ASpentBudgetIsSentOnceAndEndsThoseThatNobodyHas) {
    add_trials(2, 8);
    evaluate_every(0);
    job.sweep->budget_hours = 1e-7;  // less than a millisecond
    begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    collect();
    EXPECT_EQ(known(first), AdapterStatus::stopped);
    EXPECT_FALSE(last.budget_spent) << "no worker has any";
}

// ---- work moves

TEST_F(RunDispatcher, HalfOfWhatTheLastWorkerHasMovesToOneThatHasNothing) {
    let_one_have_all();
    EXPECT_EQ(last.returned[0].worker, 0);
    EXPECT_EQ(last.returned[0].adapter, moves);
    EXPECT_TRUE(last.given.empty()) << "its worker has it still";
    WorkerReport back;
    back.returned = {{0, moves, "there/7"}};
    report(back);
    ASSERT_EQ(last.given.size(), 1U);
    EXPECT_EQ(last.given[0].worker, 1);
    EXPECT_EQ(last.given[0].adapter, moves);
    EXPECT_EQ(last.given[0].checkpoint, "there/7");
}

TEST_F(RunDispatcher, ATrialThatEndsWhileItMovesIsNotGivenAgain) {
    let_one_have_all();
    report(0, moves, at(10000, AdapterStatus::done));
    EXPECT_TRUE(last.given.empty());
    EXPECT_EQ(known(moves), AdapterStatus::done);
    ask(1, 1);
    EXPECT_TRUE(last.given.empty());
    EXPECT_TRUE(last.returned.empty()) << "one adapter is not halved";
}

TEST_F(RunDispatcher, NothingElseMovesUntilOneThatMovesIsBack) {
    let_one_have_all();
    ask(1, 1);
    EXPECT_TRUE(last.returned.empty());
    EXPECT_TRUE(last.given.empty());
}

TEST_F(RunDispatcher, AnOrderToStopFollowsAnAdapterThatMoves) {
    let_one_have_all();
    put(name(moves) + ".stop");
    look();
    EXPECT_EQ(last.ended, (std::vector<AdapterId>{moves}));
    WorkerReport back;  // it left before its worker heard of the order
    back.returned = {{0, moves, "there/7"}};
    report(back);
    ASSERT_EQ(last.given.size(), 1U);
    EXPECT_EQ(last.given[0].worker, 1);
    EXPECT_EQ(last.ended, (std::vector<AdapterId>{moves})) << "who has it now has to hear of it";
}

TEST_F(RunDispatcher, OneThatIsToStopAndComesBackBeforeItHasBegunEnds) {
    let_one_have_all();
    put(name(moves) + ".stop");
    look();
    WorkerReport back;
    back.returned = {{0, moves, ""}};
    report(back);
    EXPECT_TRUE(last.given.empty());
    EXPECT_EQ(known(moves), AdapterStatus::stopped);
    EXPECT_FALSE(has(folder.path("inbox/" + name(moves) + ".stop")));
}

TEST_F(RunDispatcher, ShortWorkIsNotMoved) {
    add({3, 3});
    begin();
    ask(0, 2);
    report(0, first, at(1), 1000000000);
    report(0, second, at(1), 1000000000);
    ask(1, 1);
    EXPECT_TRUE(last.returned.empty());
}

// ---- former starts

TEST_F(RunDispatcher, OneThatBeganInAnEarlierStartEndsAtTheWorkerThatGetsIt) {
    add(10);
    former.state.adapters.resize(1);
    former.state.adapters[0] = at(5, AdapterStatus::waiting);
    former.checkpoints = {"former/5"};
    begin();
    put(name(AdapterId{0}) + ".stop");
    look();
    EXPECT_EQ(known(AdapterId{0}), AdapterStatus::waiting) << "a worker has to export it";
    ask(0, 1);
    EXPECT_EQ(given_to(0), (std::vector<AdapterId>{AdapterId{0}}));
    EXPECT_EQ(last.ended, (std::vector<AdapterId>{AdapterId{0}}));
}

TEST_F(RunDispatcher, WhatHasBegunGoesOnFromItsCheckpoint) {
    add({8, 8});
    former.state.adapters.resize(2);
    former.state.adapters[0] = at(8, AdapterStatus::done);
    former.state.adapters[1] = at(5);
    former.state.round = 8;
    former.checkpoints = {"", "former/5"};
    begin();
    ask(0, 2);
    ask(1, 2);
    collect();
    EXPECT_EQ(dispatcher->state().round, 8);
    EXPECT_EQ(known(first), AdapterStatus::done);
    ASSERT_EQ(all_given.size(), 1U);
    EXPECT_EQ(all_given[0].adapter, second);
    EXPECT_EQ(all_given[0].checkpoint, "former/5");
}

}  // namespace
}  // namespace loratrain::test

#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

/// Orders of people that come through the inbox, and stops, of a worker that trains all of the run.
class RunOrders : public ::testing::Test, protected WorkerRun {
  protected:
    bool in_inbox(const std::string& file) const { return has(folder.path("inbox/" + file)); }
    bool is_rejected(const std::string& file) const {
        return has(folder.path("inbox/rejected/" + file)) && !in_inbox(file);
    }
    std::string why(const std::string& file) const {
        return get(folder.path("inbox/rejected/" + file + ".error"));
    }
    AdapterId named(const std::string& wanted) const {
        for (std::size_t i = 0; i < job.adapters.size(); ++i) {
            if (job.adapters[i].name == wanted) return static_cast<AdapterId>(i);
        }
        ADD_FAILURE() << wanted << " was not added";
        return first;
    }
};

// ---- an adapter is stopped

TEST_F(RunOrders, AStopFileEndsAnAdapterInTheStreamAsItIs) {
    add({40, 12});
    cut_windows(2);
    make();
    before(first, 3, [this] { put("a0.stop"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::stopped);
    EXPECT_GE(steps(first), 3);
    EXPECT_LE(steps(first), 10) << "two windows later at most";
    EXPECT_EQ(exported_step(first), steps(first));
    EXPECT_EQ(metrics(first, "eval_loss").back(), steps(first)) << "evaluated as it is";
    EXPECT_EQ(exported_step(second), 12);
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_FALSE(in_inbox("a0.stop")) << "obeyed";
}

TEST_F(RunOrders, AStopBetweenOrderAndTrainHoldsFromTheNextWindowOn) {
    add({40, 12});
    cut_windows(2);
    make();
    // The window behind has been ordered; it trains as it was planned.
    ranks->on_order = [this](const std::string& line) {
        if (line == "window 4+2") put("a0.stop");
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::stopped);
    EXPECT_GE(steps(first), 6);
    EXPECT_LE(steps(first), 8);
    EXPECT_EQ(ranks->steps(first), steps(first)) << "neither more nor fewer steps than it says";
    EXPECT_EQ(exported_step(first), steps(first));
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunOrders, AStopThatNoCheckpointHasIsKeptForANewStart) {
    add({40, 40});
    cut_windows(2);
    job.checkpoint.every_steps = 8;
    job.checkpoint.keep = 20;
    make();
    ranks->looks_for_parts = 10;
    before(first, 3, [this] { put("a0.stop"); });
    const auto put_it = ranks->before_step;
    bool obeyed = false;
    ranks->before_step = [&](const BatchPlan& batch) {
        put_it(batch);
        if (batch.round < 3 || obeyed || in_inbox("a0.stop")) return;
        obeyed = true;
        EXPECT_EQ(stored(rounds_stored().back()).adapters[0].status, AdapterStatus::stopped);
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(obeyed) << "while the other one trains";
    EXPECT_EQ(stored(16).adapters[0].status, AdapterStatus::stopped);
}

TEST_F(RunOrders, AStopThatComesWhileACheckpointIsWrittenIsInTheNext) {
    add({40, 30});
    cut_windows(2);
    job.checkpoint.every_steps = 6;
    job.checkpoint.keep = 20;
    make();
    ranks->looks_for_parts = 10;
    ranks->on_order = [this](const std::string& line) {
        if (line == "copy 0 1" && rounds_stored().empty()) put("a0.stop");
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(stored(6).adapters[0].status, AdapterStatus::running) << "it trained then";
    EXPECT_EQ(stored(6).adapters[0].steps, 6);
    EXPECT_EQ(status(first), AdapterStatus::stopped);
    EXPECT_GT(steps(first), 6);
    EXPECT_EQ(stored(18).adapters[0].status, AdapterStatus::stopped);
    EXPECT_FALSE(in_inbox("a0.stop"));
}

TEST_F(RunOrders, AnUnknownNameIsRefused) {
    add(12);
    cut_windows(2);
    make();
    put("nobody.stop");
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(is_rejected("nobody.stop"));
    EXPECT_EQ(why("nobody.stop"), "this run has no such adapter\n");
    EXPECT_EQ(exported_step(first), 12);
}

TEST_F(RunOrders, OneThatWaitsIsStoppedBeforeItsFirstStep) {
    add({12, 12});
    job.schedule.max_adapters = 1;
    cut_windows(2);
    make();
    put("a1.stop");
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(second), AdapterStatus::stopped);
    EXPECT_EQ(steps(second), 0);
    EXPECT_FALSE(is_exported(second));
    EXPECT_EQ(ranks->rounds_of(second), Steps{});
}

TEST_F(RunOrders, TheLastOneIsStoppedWithAnEmptyPipeline) {
    add(40);
    cut_windows(2);
    make();
    before(first, 3, [this] { put("a0.stop"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::stopped);
    EXPECT_LT(steps(first), 40);
    EXPECT_EQ(exported_step(first), steps(first));
    EXPECT_EQ(metrics(first, "eval_loss").back(), steps(first));
}

TEST_F(RunOrders, OneThatHasEndedIsNotStoppedAgain) {
    add({2, 12});
    cut_windows(2);
    make();
    before(second, 6, [this] { put("a0.stop"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::done);
    EXPECT_EQ(ranks->count("send 0"), 1U);
    EXPECT_FALSE(in_inbox("a0.stop")) << "there is nothing left to obey";
}

// ---- the run is stopped

TEST_F(RunOrders, AFileStopEndsTheRunWithACheckpoint) {
    add(40);
    cut_windows(2);
    make();
    before(first, 3, [this] { folder.write("STOP", ""); });
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_LT(steps(first), 40);
    EXPECT_EQ(stored_step(steps(first), first), steps(first));
    EXPECT_EQ(status(first), AdapterStatus::running);
    EXPECT_FALSE(is_exported(first));
    EXPECT_FALSE(has(folder.path("STOP"))) << "the next start trains";
}

TEST_F(RunOrders, ASignalOfAnotherRankEndsTheRunWithACheckpoint) {
    add(40);
    cut_windows(2);
    make();
    before(first, 3, [this] { ranks->signal = 15; });
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_EQ(loop->stop_reason(), "signal SIGTERM received");
    EXPECT_EQ(stored(steps(first)).adapters[0].steps, ranks->steps(first));
}

TEST_F(RunOrders, ARunThatIsToStopBeforeItBeginsTrainsNothing) {
    add(4);
    make();
    folder.write("STOP", "");
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_EQ(ranks->streams(), 0);
    EXPECT_EQ(steps(first), 0);
}

TEST_F(RunOrders, TheLastRoundThatIsAskedForIsTheLast) {
    add({40, 3});
    stop_after = 7;
    make();
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_EQ(ranks->rounds_of(first).back(), 6);
    EXPECT_EQ(rounds_stored(), (Steps{7}));
    EXPECT_EQ(exported_step(second), 3);
}

TEST_F(RunOrders, ASpentBudgetEndsTrialsAsTheyAre) {
    add_trials(2, 40);
    add(12);  // no trial
    evaluate_every(0);
    job.checkpoint.every_steps = 4;  // cuts windows
    make();
    before(first, 5, [this] { job.sweep->budget_hours = 1e-9; });
    EXPECT_EQ(run(), ExitCode::done);
    for (const AdapterId a : {first, second}) {
        const AdapterState trial = state().adapters[index(a)];
        EXPECT_EQ(trial.status, AdapterStatus::stopped);
        EXPECT_LT(trial.steps, 40);
        EXPECT_NE(trial.reason.find("budget"), std::string::npos);
        EXPECT_DOUBLE_EQ(trial.last_eval_loss, 1.0 / (trial.steps + 1)) << "evaluated as it is";
    }
    EXPECT_EQ(exported_step(third), 12) << "what is no trial trains to its end";
}

// ---- the run grows

TEST_F(RunOrders, AnAdapterThatIsAddedJoinsTheStream) {
    add(30);
    cut_windows(2);
    make();
    let_grow();
    before(first, 3, [this] { put("new.yaml", "5"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(named("new")), 5);
    EXPECT_EQ(exported_step(first), 30);
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_TRUE(has(folder.path("inbox/accepted/0001-new.yaml")));
    EXPECT_EQ(metrics(named("new"), "loss"), (Steps{1, 2, 3, 4, 5}));
}

TEST_F(RunOrders, OfTwoFilesTheSecondIsBad) {
    add(60);
    cut_windows(2);
    make();
    let_grow();
    ranks->problem_of = [](int, const InboxFile& file) {
        return file.text == "bad" ? "no good" : "";
    };
    before(first, 3, [this] {
        put("x1.yaml", "3");
        put("x2.yaml", "bad");
    });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(named("x1")), 3);
    EXPECT_TRUE(is_rejected("x2.yaml"));
    EXPECT_EQ(why("x2.yaml"), "no good\n");
    EXPECT_EQ(job.adapters.size(), 2U);
    EXPECT_EQ(ranks->count("take"), 1U);
}

TEST_F(RunOrders, FilesBehindABadOneAreLookedAtAgain) {
    add(80);
    cut_windows(2);
    make();
    let_grow();
    ranks->problem_of = [](int, const InboxFile& file) {
        return file.text == "bad" ? "no good" : "";
    };
    before(first, 3, [this] {
        put("x1.yaml", "bad");
        put("x2.yaml", "3");
    });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(is_rejected("x1.yaml"));
    EXPECT_EQ(exported_step(named("x2")), 3);
    EXPECT_EQ(ranks->count("drop"), 2U) << "asked about twice";
}

TEST_F(RunOrders, AFileThatIsBadOnAnotherRankAloneIsRefused) {
    add(40);
    cut_windows(2);
    cluster.ranks = 2;
    job.parallel.pipeline_stages = 2;
    make();
    let_grow();
    ranks->problem_of = [](int rank, const InboxFile&) { return rank == 1 ? "not here" : ""; };
    before(first, 3, [this] { put("x1.yaml", "3"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(is_rejected("x1.yaml"));
    EXPECT_EQ(why("x1.yaml"), "not here\n");
    EXPECT_EQ(job.adapters.size(), 1U);
    EXPECT_EQ(exported_step(first), 40);
}

TEST_F(RunOrders, TheRunDoesNotGrowWhileACheckpointIsWritten) {
    add(40);
    cut_windows(2);
    job.checkpoint.every_steps = 6;
    job.checkpoint.keep = 20;
    make();
    let_grow();
    const auto grow = ranks->grow;
    std::size_t complete = 0;
    std::size_t begun = 0;
    ranks->grow = [&](const InboxFile& file) {
        complete = rounds_stored().size();
        begun = ranks->count("copy 0");
        grow(file);
    };
    ranks->looks_for_parts = 300;  // the answers are there before it is complete
    before(first, 3, [this] { put("x1.yaml", "3"); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(named("x1")), 3);
    EXPECT_GE(begun, 1U) << "a checkpoint came between";
    EXPECT_EQ(complete, begun) << "which was complete then";
    EXPECT_EQ(stored(6).adapters.size(), 2U) << "read with the job of now";
    EXPECT_EQ(stored(6).adapters[1].steps, 0);
}

TEST_F(RunOrders, AHigherPriorityThatIsAddedTrainsFirst) {
    add(60);
    job.schedule.max_adapters = 1;
    cut_windows(2);
    make();
    let_grow();
    const auto grow = ranks->grow;
    ranks->grow = [&](const InboxFile& file) {
        grow(file);
        job.adapters.back().priority = 1;
    };
    before(first, 3, [this] { put("urgent.yaml", "5"); });
    EXPECT_EQ(run(), ExitCode::done);
    const AdapterId urgent = named("urgent");
    const Steps rounds = ranks->rounds_of(urgent);
    ASSERT_EQ(rounds.size(), 5U);
    EXPECT_EQ(rounds.back() - rounds.front(), 4) << "without a break";
    EXPECT_LT(rounds.back(), ranks->rounds_of(first).back());
    EXPECT_EQ(exported_step(first), 60);
    EXPECT_GE(ranks->streams(), 2) << "its place is emptied with the pipeline";
}

TEST_F(RunOrders, AFileThatComesAtTheEndIsStillTaken) {
    add(4);
    make();
    let_grow();
    ranks->on_order = [this](const std::string& line) {
        if (line == "send 0") put("late.yaml", "3");
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(named("late")), 3);
}

}  // namespace
}  // namespace loratrain::test

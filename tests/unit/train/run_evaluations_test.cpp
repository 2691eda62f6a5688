#include "train/checkpoint/best_adapter.h"
#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

/// Evaluations in the stream, best states and rungs of trials.
class RunEvaluations : public ::testing::Test, protected WorkerRun {
  protected:
    /// Evaluated every two steps; ends after two evaluations without gain.
    void stop_early() {
        evaluate_every(2);
        job.eval.early_stopping_patience = 2;
    }
    /// Of one adapter, both every few steps.
    void keep_bests_and_checkpoints() {
        add(12);
        evaluate_every(2);
        job.eval.keep_best = true;
        job.checkpoint.every_steps = 4;
        job.checkpoint.keep = 10;
        make();
    }
    /// Lowest behind this step.
    static FakeRanks::OfStep lowest_at(std::int32_t step) {
        return [=](AdapterId, std::int32_t now) { return 1.0 + std::abs(now - step); };
    }
    std::size_t evaluations(AdapterId a, std::int32_t step) const {
        const auto& all = ranks->evaluated();
        return static_cast<std::size_t>(std::count(all.begin(), all.end(), AdapterAtStep{a, step}));
    }
};

// ---- early stopping

TEST_F(RunEvaluations, AnEarlyStopEndsAnAdapterAtItsStepInTheStream) {
    add({20, 12});
    stop_early();
    make();
    ranks->eval_loss = [](AdapterId a, std::int32_t step) {
        return a == first ? std::max(1.0, 5.0 - step) : 1.0 / (step + 1);
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::stopped_early);
    EXPECT_EQ(steps(first), 8) << "the best was at 4, and 6 and 8 gained nothing";
    EXPECT_EQ(ranks->steps(first), 8) << "no step is taken beyond";
    EXPECT_EQ(exported_step(first), 8);
    EXPECT_EQ(steps(second), 12);
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunEvaluations, ResultsThatComeLateEndAnAdapterAtTheSameStep) {
    add({20, 12});
    stop_early();
    make();
    ranks->eval_loss = [](AdapterId a, std::int32_t step) {
        return a == first ? 1.0 : 1.0 / (step + 1);
    };
    ranks->looks_for_results = 40;
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(status(first), AdapterStatus::stopped_early);
    EXPECT_EQ(ranks->rounds_of(first), (Steps{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(exported_step(first), 6);
    EXPECT_EQ(exported_step(second), 12);
    EXPECT_EQ(metrics(first, "eval_loss"), (Steps{0, 2, 4, 6}));
}

TEST_F(RunEvaluations, AnEarlyStopMakesRoomForOneThatWaits) {
    add({20, 4});
    stop_early();
    job.schedule.max_adapters = 1;
    make();
    ranks->eval_loss = [](AdapterId a, std::int32_t step) {
        return a == first ? 1.0 : 1.0 / (step + 1);
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(steps(first), 6);
    EXPECT_EQ(ranks->rounds_of(second), (Steps{6, 7, 8, 9}));
}

// ---- before the first step

TEST_F(RunEvaluations, AdaptersThatStartAlikeAreEvaluatedOnce) {
    add({3, 3});
    evaluate_every(0);
    make();
    run();
    EXPECT_EQ(evaluations(first, 0) + evaluations(second, 0), 1U);
    EXPECT_EQ(metrics(first, "eval_loss"), (Steps{0, 3}));
    EXPECT_EQ(metrics(second, "eval_loss"), (Steps{0, 3}));
    EXPECT_EQ(state().adapters[1].first_eval_loss, 1.0);
}

TEST_F(RunEvaluations, OneThatComesInTheStreamTakesTheStartThatIsKnown) {
    add({3, 3});
    evaluate_every(0);
    job.schedule.max_adapters = 1;
    make();
    run();
    EXPECT_EQ(evaluations(second, 0), 0U);
    EXPECT_EQ(metrics(second, "eval_loss"), (Steps{0, 3}));
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunEvaluations, OneThatStartsOtherwiseIsEvaluatedInTheStream) {
    add(3);
    add(3).init_from = "elsewhere";
    evaluate_every(0);
    job.schedule.max_adapters = 1;
    make();
    run();
    EXPECT_EQ(evaluations(second, 0), 1U);
    EXPECT_EQ(metrics(second, "eval_loss"), (Steps{0, 3}));
    EXPECT_EQ(ranks->streams(), 1);
}

// ---- best states

TEST_F(RunEvaluations, TheBestStateHasTheParametersThatWereEvaluated) {
    add(8);
    evaluate_every(2);
    job.eval.keep_best = true;
    make();
    ranks->eval_loss = lowest_at(4);
    run();
    EXPECT_EQ(best_step(first), 4);
    EXPECT_EQ(exported_step(first), 8);
    EXPECT_EQ(state().adapters[0].best_step, 4);
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunEvaluations, TheLastOfManyBestStatesIsLeftHoweverLatePartsCome) {
    add(10);
    evaluate_every(2);
    job.eval.keep_best = true;
    make();
    ranks->looks_for_parts = 60;
    std::vector<std::int32_t> seen;
    ranks->before_step = [&](const BatchPlan&) {
        const std::string path = of(first, "best/adapter_model.safetensors");
        if (has(path) && (seen.empty() || seen.back() != step_in(path))) {
            seen.push_back(step_in(path));
        }
    };
    run();
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << "written in the order found";
    EXPECT_EQ(best_step(first), 10);
}

TEST_F(RunEvaluations, WithNoRoomForCopiesTheBestIsFetchedWithAnEmptyPipeline) {
    add(8);
    evaluate_every(2);
    job.eval.keep_best = true;
    memory_for = 1;
    make();
    ranks->eval_loss = lowest_at(4);
    run();
    EXPECT_EQ(best_step(first), 4);
    EXPECT_EQ(exported_step(first), 8);
    EXPECT_EQ(ranks->streams(), 4) << "one for each evaluation that another step follows";
}

TEST_F(RunEvaluations, ACheckpointHasTheBestOfItsRound) {
    keep_bests_and_checkpoints();
    ranks->looks_for_parts = 80;  // the next evaluations come while it is written
    run();
    for (const std::int32_t round : rounds_stored()) {
        EXPECT_EQ(step_in(checkpoint(round) + "/" + kept_best_name(job.adapter(first))), round);
        EXPECT_EQ(stored(round).adapters[0].best_step, round);
    }
    EXPECT_EQ(best_step(first), 12);
}

TEST_F(RunEvaluations, ALaterBestWaitsForTheCheckpointThatIsBeingWritten) {
    keep_bests_and_checkpoints();
    ranks->looks_for_parts = 80;
    ranks->parts_together = true;  // of later bests with those of the checkpoint
    run();
    EXPECT_TRUE(ranks->is_in_stream("copy 0"));
    for (const std::int32_t round : rounds_stored()) {
        EXPECT_EQ(step_in(checkpoint(round) + "/" + kept_best_name(job.adapter(first))), round);
    }
    EXPECT_EQ(best_step(first), 12);
}

// ---- rungs

/// Six trials of nine steps on rungs at 3 and 9: two go on.
class RunRungs : public RunEvaluations {
  protected:
    void SetUp() override {
        add_trials(6, 9);
        job.sweep->scheduler = TrialScheduler::halving;
        job.sweep->rungs = 2;
        job.sweep->top_k = 6;
        evaluate_every(0);
    }
    /// The later, the better.
    void run_trials() {
        make();
        ranks->eval_loss = [](AdapterId a, std::int32_t step) {
            return 10.0 - number(a) - 0.01 * step;
        };
    }
    std::vector<Steps> all_rounds() const {
        std::vector<Steps> rounds;
        for (int i = 0; i < 6; ++i) rounds.push_back(ranks->rounds_of(AdapterId{i}));
        return rounds;
    }
    void expect_two_survivors() const {
        for (int i = 0; i < 6; ++i) {
            EXPECT_EQ(status(AdapterId{i}), i < 4 ? AdapterStatus::pruned : AdapterStatus::done)
                << i;
        }
    }
};

TEST_F(RunRungs, HalvingLeavesTheBestInTheStream) {
    job.sweep->speculate = Speculation::never;
    run_trials();
    EXPECT_EQ(run(), ExitCode::done);
    expect_two_survivors();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(steps(AdapterId{i}), 3) << i;
    EXPECT_EQ(exported_step(AdapterId{5}), 9);
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunRungs, WhoTrainsDoesNotDependOnWhenResultsCome) {
    job.schedule.max_adapters = 3;
    run_trials();
    EXPECT_EQ(run(), ExitCode::done);
    expect_two_survivors();
    const std::vector<Steps> expected = all_rounds();
    const RunState before = state();
    for (const bool reversed : {false, true}) {
        SCOPED_TRACE(reversed);
        WorkerRun other;
        const std::string dir = other.job.run.dir;
        other.job = job;
        other.job.run.dir = dir;
        other.datasets = datasets;
        other.make();
        other.ranks->eval_loss = ranks->eval_loss;
        other.ranks->looks_for_results = 25;
        other.ranks->results_reversed = reversed;
        EXPECT_EQ(other.run(), ExitCode::done);
        for (int i = 0; i < 6; ++i) {
            EXPECT_EQ(other.ranks->rounds_of(AdapterId{i}), expected[index(AdapterId{i})]) << i;
            EXPECT_EQ(other.status(AdapterId{i}), before.adapters[index(AdapterId{i})].status);
        }
    }
}

TEST_F(RunRungs, PlacesOfPrunedTrialsGoToThoseThatWait) {
    job.schedule.max_adapters = 2;
    job.sweep->speculate = Speculation::never;
    run_trials();
    ranks->before_step = [&](const BatchPlan& batch) {
        EXPECT_LE(ranks->trained_in(batch.round).size(), 2U);
    };
    EXPECT_EQ(run(), ExitCode::done);
    expect_two_survivors();
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(RunRungs, ATrialIsRecordedOnlyOnceItsMetricsAre) {
    job.sweep->speculate = Speculation::never;
    job.sweep->exports = SweepExport::all;
    add(20);  // no trial: it trains on
    run_trials();
    ranks->before_step = [&](const BatchPlan&) {
        for (int i = 0; i < 6; ++i) {
            const AdapterId a{i};
            if (!is_exported(a)) continue;
            EXPECT_EQ(metrics(a, "loss").size(), static_cast<std::size_t>(exported_step(a))) << i;
        }
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(is_exported(AdapterId{5}));
}

}  // namespace
}  // namespace loratrain::test

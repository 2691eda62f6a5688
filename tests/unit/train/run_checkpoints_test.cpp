#include "io/json_text.h"
#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

/// Checkpoints and exports of a run.
class RunCheckpoints : public ::testing::Test, protected WorkerRun {
  protected:
    void save_every(int steps) {
        job.checkpoint.every_steps = steps;
        job.checkpoint.keep = 20;
    }
    /// A checkpoint's state without times.
    static std::string state_text(const std::string& checkpoint) {
        OrderedJson json = parse_ordered_json(get(checkpoint + "/state.json"));
        json.erase("elapsed_seconds");
        return dump_json(json, 1);
    }
};

TEST_F(RunCheckpoints, InTheStreamTheyHoldTheStateOfTheirRound) {
    add({10, 7});
    save_every(3);
    make();
    ranks->looks_for_parts = 30;
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(rounds_stored(), (Steps{3, 6, 9, 10}));
    for (const std::int32_t round : rounds_stored()) {
        const RunState then = stored(round);
        for (const AdapterId a : {first, second}) {
            const std::int32_t expected = std::min(round, a == first ? 10 : 7);
            EXPECT_EQ(then.adapters[index(a)].steps, expected);
            EXPECT_EQ(stored_step(round, a), expected) << round;
        }
        EXPECT_EQ(then.round, round);
    }
    EXPECT_TRUE(ranks->is_in_stream("copy 0 1"));
    EXPECT_EQ(stored(9).adapters[1].status, AdapterStatus::done);
    EXPECT_EQ(stored(6).adapters[1].status, AdapterStatus::running);
}

TEST_F(RunCheckpoints, WithNoRoomForCopiesTheFilesAreTheSame) {
    add({10, 7});
    evaluate_every(3);
    save_every(3);
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(ranks->is_in_stream("copy 0 1"));
    WorkerRun drained;
    const std::string dir = drained.job.run.dir;
    drained.job = job;
    drained.job.run.dir = dir;
    drained.datasets = datasets;
    drained.memory_for = 2;
    drained.make();
    EXPECT_EQ(drained.run(), ExitCode::done);
    EXPECT_FALSE(drained.ranks->is_in_stream("copy 0 1"));
    EXPECT_GE(drained.ranks->streams(), 4);
    ASSERT_EQ(drained.rounds_stored(), rounds_stored());
    for (const std::int32_t round : rounds_stored()) {
        EXPECT_EQ(state_text(drained.checkpoint(round)), state_text(checkpoint(round)));
        for (const AdapterId a : {first, second}) {
            const std::string file = "/" + stored_adapter_name(job.adapter(a));
            EXPECT_EQ(get(drained.checkpoint(round) + file), get(checkpoint(round) + file));
        }
    }
}

TEST_F(RunCheckpoints, OneThatBeginsWithAnExportHasItsEnd) {
    add({4, 9});
    save_every(4);
    make();
    ranks->looks_for_parts = 20;
    ranks->before_step = [this](const BatchPlan&) {
        EXPECT_TRUE(!has(checkpoint(4)) || is_exported(first)) << "its files come first";
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(stored(4).adapters[0].status, AdapterStatus::done);
    EXPECT_EQ(stored_step(4, first), 4);
    EXPECT_EQ(exported_step(first), 4);
    EXPECT_TRUE(ranks->is_in_stream("copy 0 1"));
}

TEST_F(RunCheckpoints, OneThatComesBehindItHasNotBegunInIt) {
    add({3, 8, 4});
    job.schedule.max_adapters = 2;
    save_every(3);
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->rounds_of(third).front(), 3);
    EXPECT_EQ(stored(3).adapters[2].steps, 0);
    EXPECT_EQ(stored(3).adapters[2].status, AdapterStatus::waiting);
    EXPECT_EQ(stored(6).adapters[2].steps, 3);
}

TEST_F(RunCheckpoints, EvaluationsOfTheirRoundAreInThemHoweverLateTheyCome) {
    add(9);
    evaluate_every(3);
    save_every(3);
    make();
    ranks->looks_for_results = 30;
    EXPECT_EQ(run(), ExitCode::done);
    for (const std::int32_t round : {3, 6, 9}) {
        EXPECT_DOUBLE_EQ(stored(round).adapters[0].last_eval_loss, 1.0 / (round + 1));
        EXPECT_EQ(stored(round).adapters[0].steps, round);
    }
    EXPECT_TRUE(ranks->is_in_stream("copy 0"));
}

TEST_F(RunCheckpoints, MetricsOfTheirStepsAreWrittenBefore) {
    add(9);
    save_every(3);
    make();
    ranks->before_step = [this](const BatchPlan&) {
        for (const std::int32_t round : rounds_stored()) {
            EXPECT_GE(metrics(first, "loss").size(), static_cast<std::size_t>(round));
        }
    };
    EXPECT_EQ(run(), ExitCode::done);
}

TEST_F(RunCheckpoints, OneAtATimeIsWritten) {
    add(12);
    save_every(2);
    make();
    ranks->looks_for_parts = 200;
    int open = 0;
    ranks->on_order = [&](const std::string& line) {
        if (!line.starts_with("copy")) return;
        EXPECT_EQ(rounds_stored().size(), static_cast<std::size_t>(open++))
            << "the one before is complete";
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(rounds_stored().back(), 12);
    EXPECT_EQ(stored_step(12, first), 12);
}

TEST_F(RunCheckpoints, OfTimeTheyBeginInTheStreamToo) {
    add(12);
    cut_windows(2);
    job.checkpoint.every_minutes = 1e-9;
    job.checkpoint.keep = 20;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_GE(rounds_stored().size(), 2U);
    for (const std::int32_t round : rounds_stored()) EXPECT_EQ(stored_step(round, first), round);
}

// ---- exports

TEST_F(RunCheckpoints, EachAdapterIsExportedOnce) {
    add({3, 5, 5});
    evaluate_every(2);
    make();
    EXPECT_EQ(run(), ExitCode::done);
    for (const char* line : {"send 0", "send 1", "send 2"}) EXPECT_EQ(ranks->count(line), 1U);
}

TEST_F(RunCheckpoints, AnExportWaitsForTheLastEvaluation) {
    add({3, 9});
    evaluate_every(0);
    make();
    ranks->looks_for_results = 30;
    ranks->on_order = [this](const std::string& line) {
        EXPECT_TRUE(line != "send 0" || state().adapters[0].last_eval_loss == 0.25);
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(first), 3);
}

TEST_F(RunCheckpoints, AnExportThatCannotBeWrittenEndsTheRun) {
    add({3, 9});
    make();
    std::filesystem::create_directories(of(first, "adapter_model.safetensors/in-the-way"));
    EXPECT_THROW(run(), std::exception);
    EXPECT_FALSE(is_exported(first));
    loop->record_failure("disk");
    EXPECT_NE(get(folder.path("status.json")).find("failed"), std::string::npos);
}

}  // namespace
}  // namespace loratrain::test

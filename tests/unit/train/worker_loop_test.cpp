#include "train/worker_loop.h"

#include <sys/resource.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <mutex>

#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

class WorkerLoopRun : public ::testing::Test, protected WorkerRun {};

TEST_F(WorkerLoopRun, TrainsAndExportsAllAndSavesAtTheEnd) {
    add({5, 3});
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(steps(first), 5);
    EXPECT_EQ(steps(second), 3);
    EXPECT_EQ(exported_step(first), 5);
    EXPECT_EQ(exported_step(second), 3);
    EXPECT_EQ(rounds_stored(), (Steps{5}));
    EXPECT_EQ(stored_step(5, first), 5);
    EXPECT_EQ(metrics(second, "loss"), (Steps{1, 2, 3}));
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_EQ(ranks->log().back(), "finished");
}

TEST_F(WorkerLoopRun, ExportsOfManyAdaptersHaveNoLineEach) {
    for (std::size_t i = 0; i <= most_logged_exports; ++i) add(1);
    make();
    std::mutex mutex;
    std::vector<std::string> lines;
    log::set_rank(1);
    log::forward_info([&](const std::string& line) {
        const std::lock_guard lock(mutex);
        if (line.find("exported") != std::string::npos) lines.push_back(line);
    });
    EXPECT_EQ(run(), ExitCode::done);
    log::forward_info({});
    log::set_rank(0);
    std::size_t counted = 0;
    for (const std::string& line : lines) {
        EXPECT_TRUE(line.ends_with(job.run.dir + "/adapters")) << line;
        counted += std::stoul(line.substr(line.find("exported") + 9));
    }
    EXPECT_EQ(counted, most_logged_exports + 1);
    EXPECT_LT(lines.size(), 10U);
    EXPECT_TRUE(is_exported(AdapterId{64}));
}

TEST_F(WorkerLoopRun, ExportsForWhichNobodyTrainsOnAreWrittenAtFullPriority) {
    add({40, 3});
    make();
    const auto priority = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
    std::mutex mutex;
    std::map<char, int> priorities;  // by the last letter of the adapter's name
    log::set_rank(1);
    log::forward_info([&](const std::string& line) {
        if (line.find("exported") == std::string::npos) return;
        const std::lock_guard lock(mutex);
        priorities[line.back()] = priority();
    });
    EXPECT_EQ(run(), ExitCode::done);
    log::forward_info({});
    log::set_rank(0);
    EXPECT_EQ(priorities.at('0'), priority());
    EXPECT_EQ(priorities.at('1'), std::min(priority() + 10, 19));
}

TEST_F(WorkerLoopRun, StagesAndReplicasEachSendTheirPart) {
    add(4);
    evaluate_every(2);
    cluster.ranks = 2;
    for (const bool replicas : {false, true}) {
        SCOPED_TRACE(replicas);
        ranks.reset();
        job.parallel.pipeline_stages = replicas ? 1 : 2;
        if (replicas) job.parallel.deployment = {{1, 1, 2}};
        make();
        ASSERT_EQ(ranks->count(), 2);
        EXPECT_EQ(run(), ExitCode::done);
        EXPECT_EQ(exported_step(first), 4);
        EXPECT_EQ(stored_step(4, first), 4);
        EXPECT_DOUBLE_EQ(state().adapters[0].last_eval_loss, 0.2);
        EXPECT_EQ(metrics(first, "eval_loss"), (Steps{0, 2, 4}));
    }
}

TEST_F(WorkerLoopRun, AContinuedRunTakesTheStepsThatAreLeft) {
    add({5, 2});
    stop_after = 3;
    make();
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_EQ(loop->stop_reason(), "--stop-after 3 reached");
    EXPECT_EQ(rounds_stored(), (Steps{3}));
    EXPECT_TRUE(is_exported(second));
    EXPECT_FALSE(is_exported(first));
    const RunState saved = stored(3);
    stop_after.reset();
    start(&saved);
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->rounds_of(first), (Steps{0, 1, 2, 3, 4}));
    EXPECT_EQ(ranks->rounds_of(second), (Steps{0, 1}));
    EXPECT_EQ(metrics(first, "loss"), (Steps{1, 2, 3, 4, 5}));
    EXPECT_EQ(ranks->count("send 1"), 1U) << "it was exported before";
}

TEST_F(WorkerLoopRun, WhoeverHasNoFiniteGradientsFailsAndOthersGoOn) {
    add({9, 12});
    make();
    ranks->grad_sumsq = [](AdapterId a, std::int32_t step) {
        const bool bad = a == first && step > 1;
        return bad ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    };
    EXPECT_EQ(run(), ExitCode::some_adapters_failed);
    EXPECT_EQ(status(first), AdapterStatus::failed);
    EXPECT_TRUE(has(of(first, "FAILED")));
    EXPECT_FALSE(is_exported(first));
    EXPECT_EQ(exported_step(second), 12);
}

TEST_F(WorkerLoopRun, FewBadStepsOfAnAdapterAreSkipped) {
    add(9);
    make();
    ranks->grad_sumsq = [](AdapterId, std::int32_t step) {
        return step % 5 != 0 ? std::numeric_limits<double>::infinity() : 1.0;
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(exported_step(first), 9);
}

// ---- admission

TEST_F(WorkerLoopRun, AWaitingAdapterTakesAFreedPlaceInTheStream) {
    add({3, 8, 4});
    job.schedule.max_adapters = 2;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->rounds_of(third), (Steps{3, 4, 5, 6}));
    EXPECT_EQ(ranks->rounds_of(second), (Steps{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_EQ(exported_step(third), 4);
}

TEST_F(WorkerLoopRun, AfterTheLastOneTheNextStillJoinsTheStream) {
    add({3, 2});
    job.schedule.max_adapters = 1;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->rounds_of(second), (Steps{3, 4}));
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(WorkerLoopRun, WhereMemoryIsShortTheNextComesWithAnEmptyPipeline) {
    add({3, 8, 4});
    memory_for = 2;
    make();
    ranks->before_step = [this](const BatchPlan&) { EXPECT_LE(ranks->resident(), 2U); };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_GE(ranks->rounds_of(third).front(), 3);
    EXPECT_EQ(ranks->rounds_of(third).size(), 4U);
    EXPECT_GE(ranks->streams(), 2);
    EXPECT_EQ(exported_step(second), 8);
}

TEST_F(WorkerLoopRun, MemoryOfAnAdapterIsGivenBackOnceACheckpointHasIt) {
    add({3, 20});
    job.checkpoint.every_steps = 4;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    const auto released = ranks->find("release 0");
    ASSERT_TRUE(released);
    EXPECT_LT(ranks->find("copy 0 1"), released) << "a checkpoint has it first";
    EXPECT_LT(ranks->find("send 0"), released);
    EXPECT_EQ(ranks->count("release 0"), 1U);
    EXPECT_LT(released, ranks->find("send 1")) << "while the other trains";
    EXPECT_EQ(stored_step(20, first), 3) << "later checkpoints keep its file";
}

// ---- texts

TEST_F(WorkerLoopRun, TextsAreWrittenOnceOfEachThatEnds) {
    add({3, 9});
    evaluate_every(0);
    job.eval.generate.samples = 1;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    for (const AdapterId a : {first, second}) {
        EXPECT_EQ(ranks->count("generate " + std::to_string(number(a))), 1U);
        EXPECT_TRUE(has(of(a, "generations.jsonl")));
    }
    EXPECT_EQ(ranks->streams(), 2) << "how long they take is not known at the first end";
    EXPECT_NE(get(of(first, "generations.jsonl")).find("\"generated\":[3]"), std::string::npos)
        << get(of(first, "generations.jsonl"));
}

TEST_F(WorkerLoopRun, ACheckpointDoesNotBeginWhileTextsWait) {
    add({4, 9});
    evaluate_every(0);
    job.eval.generate.samples = 1;
    job.checkpoint.every_steps = 4;
    make();
    EXPECT_EQ(run(), ExitCode::done);
    const auto generated = ranks->find("generate 0");
    ASSERT_TRUE(generated);
    EXPECT_LT(generated, ranks->find("copy 0")) << "who has ended in it has written its texts";
    EXPECT_EQ(stored(8).adapters[0].status, AdapterStatus::done);
}

// ---- redeployment

TEST_F(WorkerLoopRun, WhereAnotherDeploymentPaysTheRunEndsBehindAnEnd) {
    add({3, 9});
    std::vector<std::int32_t> asked;
    redeploys = [&](const RunState& then) {
        asked.push_back(then.adapters[1].steps);
        return true;
    };
    make();
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_TRUE(loop->redeploys());
    EXPECT_EQ(asked, (Steps{3})) << "once, of the state behind the end";
    EXPECT_EQ(exported_step(first), 3);
    EXPECT_EQ(steps(second), 3);
    EXPECT_EQ(stored(3).adapters[1].steps, 3);
    EXPECT_TRUE(ranks->find("finish 75 1"));
}

TEST_F(WorkerLoopRun, WhereNoOtherDeploymentPaysTheStreamGoesOn) {
    add({3, 6, 9});
    int asked = 0;
    redeploys = [&](const RunState&) {
        ++asked;
        return false;
    };
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_FALSE(loop->redeploys());
    EXPECT_EQ(asked, 2) << "once for each of the ends that leave somebody";
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_EQ(ranks->rounds_of(third).size(), 9U);
}

}  // namespace
}  // namespace loratrain::test

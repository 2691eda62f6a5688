#include "train/services/arrivals.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "base/text.h"
#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Sampled by the adapter as it was after `adapter_step` steps.
std::string rollouts(int count, int adapter_step) {
    const std::string line =
        cat(R"({"input_ids":[1,2],"advantages":[0,1],"logprobs":[0,-1],"adapter_step":)",
            adapter_step, "}\n");
    std::string text;
    for (int i = 0; i < count; ++i) text += line;
    return text;
}

/// A run with one adapter whose rollouts come into a folder; a step takes two of them.
class ArrivalsRun : public ::testing::Test, protected WorkerRun {
  protected:
    ~ArrivalsRun() override {
        if (person_.joinable()) person_.join();
    }

    /// After all that have files.
    AdapterId add_growing(std::int32_t steps) {
        AdapterJob& adapter = add(steps);
        adapter.loss.loss = Loss::grpo;
        adapter.dataset = static_cast<DatasetId>(job.datasets.size());
        DatasetJob& dataset = job.datasets.emplace_back();
        dataset.name = "tries";
        dataset.path = folder.path("rollouts/");
        dataset.max_seq_len = 8;
        DatasetInfo& info = datasets.emplace_back();
        info.train.assign(2, {8, 7});
        info.rollouts = true;
        info.arrivals.emplace();
        std::filesystem::create_directories(dataset.path);
        return static_cast<AdapterId>(job.adapters.size() - 1);
    }
    std::string file(int number) const {
        return folder.path("rollouts/step-" + std::to_string(number) + ".jsonl");
    }
    /// Renamed into place.
    void put_file(int number, int samples = 2) const {
        test::put(file(number) + ".part", rollouts(samples, number));
        std::filesystem::rename(file(number) + ".part", file(number));
    }
    void put_end() const { test::put(folder.path("rollouts/END"), ""); }

    /// Others take their steps slowly, from the tenth on, until the adapter has taken so many.
    void wait_for_steps(AdapterId adapter, std::int32_t count) {
        ranks->before_step = [this, adapter, count](const BatchPlan& batch) {
            if (batch.adapter == adapter || batch.step < 10) return;
            if (ranks->steps(adapter) < count) std::this_thread::sleep_for(5ms);
        };
    }
    /// Runs; the adapter's second file comes when the first adapter takes its tenth step, and END
    /// when this adapter takes step `last`. Returns the rounds of its steps.
    Steps rounds_with_late_file(AdapterId adapter, std::int32_t last) {
        make();
        wait_for_steps(adapter, last);
        before(first, 10, [this] { put_file(1); });
        before(adapter, last, [this] { put_end(); });
        EXPECT_EQ(run(), ExitCode::done);
        return ranks->rounds_of(adapter);
    }
    /// Beside the run, once the adapter is about to take this step (1 = the first).
    void meanwhile(AdapterId a, std::int32_t step, std::function<void()> work) {
        before(a, step, [this, work] { person_ = std::thread(work); });
    }

  private:
    std::thread person_;
};

TEST_F(ArrivalsRun, TrainsWhatIsThereAndEndsWithIt) {
    const AdapterId rl = add_growing(100);
    for (int number = 0; number < 20; ++number) put_file(number);
    put_file(20, 5);
    put_end();
    make();
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(steps(rl), 23);
    EXPECT_EQ(metrics(rl, "loss").size(), 23U);
    EXPECT_EQ(exported_step(rl), 23);
    EXPECT_EQ(state().adapters[index(rl)].file, 21);
}

TEST_F(ArrivalsRun, JoinsAStreamAgainWithItsNextFile) {
    add(1000);
    const AdapterId rl = add_growing(100);
    put_file(0);
    const Steps rounds = rounds_with_late_file(rl, 2);
    ASSERT_EQ(rounds.size(), 2U);
    EXPECT_GE(rounds.back(), 10);
    EXPECT_LT(rounds.back(), 999);
    EXPECT_TRUE(ranks->is_in_stream("add 2"));
    EXPECT_EQ(steps(first), 1000);
}

// ---- runs whose streams nobody leaves

TEST_F(ArrivalsRun, WhereARunMayBeRedeployedItTrainsNothingTwice) {
    add(1000);
    const AdapterId rl = add_growing(100);
    put_file(0, 4);
    redeploys = [](const RunState&) { return false; };
    const Steps rounds = rounds_with_late_file(rl, 3);
    ASSERT_EQ(rounds.size(), 3U);
    EXPECT_EQ(rounds[1], 1);
    EXPECT_GE(rounds[2], 10);
    EXPECT_LT(rounds[2], 999) << "it has to wait for the other's end";
    EXPECT_EQ(steps(first), 1000);
    EXPECT_GE(ranks->streams(), 4);
}

TEST_F(ArrivalsRun, BesideTrialsThatWriteTextsItTrainsNothingTwice) {
    add_trials(2, 1000);
    evaluate_every(0);
    job.eval.generate.samples = 1;
    const AdapterId rl = add_growing(100);
    put_file(0, 4);
    const Steps rounds = rounds_with_late_file(rl, 3);
    ASSERT_EQ(rounds.size(), 3U);
    EXPECT_LT(rounds[2], 999);
    EXPECT_EQ(steps(first), 1000);
    EXPECT_EQ(steps(second), 1000);
}

// ---- how often it looks

/// Rank 0 reads a file for some tenths of a second; the next one comes when nobody trains.
TEST_F(ArrivalsRun, ALargeFileDoesNotPutTheNextLookOff) {
    const AdapterId rl = add_growing(2);
    job.adapters.back().loss.max_staleness = 0;
    put_file(0, 50000);  // of which all but the first batch are too old for step 1
    make();
    const Clock::time_point begin = Clock::now();
    RolloutFolder probe({job.datasets.back(), plan.model.vocab_size, 2, 0}, {});
    ASSERT_TRUE(probe.next());
    const Clock::duration reading = Clock::now() - begin;
    std::atomic<Clock::time_point> came;
    Clock::time_point trained;
    meanwhile(rl, 1, [&] {
        std::this_thread::sleep_for(300ms);
        came = Clock::now();
        put_file(1);
    });
    before(rl, 2, [&] { trained = Clock::now(); });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(steps(rl), 2);
    EXPECT_LT(trained - came.load(), std::max<Clock::duration>(10 * reading, 1s));
}

// ---- ends

TEST_F(ArrivalsRun, WhoHasNoFiniteGradientsFailsAlsoWhereItsRolloutsEnd) {
    add(400);
    const AdapterId rl = add_growing(100);
    put_file(0, 2 * bad_steps_allowed);
    put_end();
    make();
    ranks->grad_sumsq = [rl](AdapterId a, std::int32_t) {
        return a == rl ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    };
    EXPECT_EQ(run(), ExitCode::some_adapters_failed);
    EXPECT_EQ(steps(rl), bad_steps_allowed);
    EXPECT_EQ(status(rl), AdapterStatus::failed);
    EXPECT_TRUE(has(of(rl, "FAILED")));
    EXPECT_FALSE(is_exported(rl));
    EXPECT_EQ(exported_step(first), 400);
}

TEST_F(ArrivalsRun, ACheckpointByTimeIsWrittenWhileAllWait) {
    const AdapterId rl = add_growing(100);
    job.checkpoint.every_minutes = 0.5 / 60;
    put_file(0);
    make();
    std::atomic<bool> saved = false;
    meanwhile(rl, 1, [&] {
        for (int i = 0; i < 1000 && !saved; ++i) {
            std::this_thread::sleep_for(10ms);
            saved = has(checkpoint(1));
        }
        put_end();
    });
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(saved);
    EXPECT_EQ(stored_step(1, rl), 1);
}

}  // namespace
}  // namespace loratrain::test

#include "train/records/run_records.h"

#include <algorithm>
#include <iterator>

#include "base/activity.h"
#include "io/run_files/event_file.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

constexpr double never = 1e9;  // seconds

class Records : public ::testing::Test {
  protected:
    Records() {
        folder_.job.datasets.resize(1);
        folder_.job.datasets[0].name = "data";
    }

    static Plan plan_of(const Job& job) {
        Plan plan;
        for (const AdapterJob& adapter : job.adapters) {
            plan.adapters.push_back({adapter.name, 2, 1, 10});
        }
        return plan;
    }

    static BatchPlan batch(std::int32_t round) {
        BatchPlan made;
        made.round = round;
        made.tokens = 100;
        return made;
    }

    static MetricsRow row(std::int32_t step, double loss) {
        MetricsRow made;
        made.step = step;
        made.loss = loss;
        made.tokens = 100.0;
        made.elapsed_seconds = 0.5 * step;
        return made;
    }

    AdapterState& state(int adapter) { return table_[AdapterId{adapter}].state; }
    RunStatus status() const { return run_status_from_json(folder_.read("status.json"), "status"); }

    /// The one event file of an adapter; "" = none.
    std::string events(const std::string& adapter) const {
        const std::filesystem::path dir = folder_.path("tensorboard/" + adapter);
        if (!std::filesystem::exists(dir)) return "";
        std::vector<std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(dir)) {
            files.push_back("tensorboard/" + adapter + "/" + entry.path().filename().string());
        }
        EXPECT_EQ(files.size(), 1U);
        return files.empty() ? "" : folder_.read(files.front());
    }

    /// Records of a file with whole framing.
    static std::size_t records_in(const std::string& file) {
        std::size_t records = 0;
        for (std::size_t at = 0; at < file.size(); ++records) {
            std::uint64_t length = 0;
            for (std::size_t i = 8; i-- > 0;) {
                length = length << 8U | static_cast<unsigned char>(file.at(at + i));
            }
            const std::string record = file.substr(at, 16 + length);
            EXPECT_EQ(record, tf_record(record.substr(12, length)));
            at += record.size();
        }
        return records;
    }

    RunFolder folder_;
    Plan plan_ = plan_of(folder_.job);
    std::vector<DatasetInfo> datasets_{{{{300, 200}, {100, 50}}, {}}};
    AdapterTable table_{folder_.job, plan_, datasets_};
};

TEST_F(Records, StartEndAndWhy) {
    RunRecords records(folder_.job, plan_, table_, 3, {}, {never, never});
    records.start(0.0, {{}, {}});
    EXPECT_EQ(status().state, "running");
    EXPECT_EQ(status().ranks, 3);
    EXPECT_EQ(status().rounds, 10);
    EXPECT_FALSE(status().adapters[0].loss);
    state(1).steps = 4;
    state(1).losses.add(0.5);
    state(1).losses.add(1.0);
    state(1).last_eval_loss = 1.5;
    records.batch_done(batch(3));
    records.beat(1.0);
    EXPECT_EQ(status().round, 0) << "the second beat came too early";
    records.end(2.0, "failed", "disk on fire");
    EXPECT_EQ(status().state, "failed");
    EXPECT_EQ(status().reason, "disk on fire");
    EXPECT_EQ(status().round, 4);
    EXPECT_EQ(status().adapters[1].loss, 0.75);
    EXPECT_EQ(status().adapters[1].eval_loss, 1.5);
    EXPECT_FALSE(status().adapters[0].eval_loss);
    EXPECT_FALSE(status().seconds_left);
    EXPECT_EQ(events("first"), "");
}

TEST_F(Records, AViewSeesWhatTheFileDoesAndMore) {
    std::vector<RunStatus> seen;
    const auto see = [&](const RunStatus& s) { seen.push_back(s); };
    RunRecords slow(folder_.job, plan_, table_, 1, see, {never, never});
    slow.start(0.0, {{}, {}});
    slow.beat(0.1);
    ASSERT_EQ(seen.size(), 1U) << "the second came too early";
    seen.clear();
    RunRecords records(folder_.job, plan_, table_, 1, see, {never, 0.0});
    records.start(0.0, {{}, {}});
    records.batch_done(batch(3));
    records.beat(0.5);
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_EQ(seen[1].round, 4);
    EXPECT_EQ(status().round, 0) << "the file has its own pace";
    records.end(1.0, "stopped", "enough");
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_EQ(seen[2].state, "stopped");
    EXPECT_EQ(to_json(seen[2]), folder_.read("status.json"));
}

TEST_F(Records, TheFileIsWrittenAgainWhenItIsOldEnough) {
    RunRecords records(folder_.job, plan_, table_, 1, {}, {0.0, never});
    records.start(0.0, {{}, {}});
    records.beat(1.0);
    EXPECT_EQ(status().tokens_per_second, 0.0);
    records.batch_done(batch(3));
    records.batch_done(batch(3));
    records.beat(1.0);
    EXPECT_EQ(status().round, 4);
    EXPECT_GT(status().tokens_per_second, 0.0);
    EXPECT_GT(status().seconds_per_round, 0.0);
    EXPECT_DOUBLE_EQ(status().seconds_left.value(),
                     table_.work_left().tokens / status().tokens_per_second);
}

TEST_F(Records, BeatsOfOneThatWaitAreNoProgress) {
    RunRecords records(folder_.job, plan_, table_, 1, {}, {0.0, 0.0});
    records.start(0.0, {{}, {}});
    const activity::Waiting waiting;
    const std::uint64_t before = activity::progress();
    for (const double seconds : {1.0, 2.0}) {
        records.batch_done(batch(3));
        records.beat(seconds);
    }
    EXPECT_EQ(status().round, 4);
    EXPECT_EQ(activity::progress(), before) << "the watchdog would not see that all wait";
    EXPECT_TRUE(activity::now().waiting);
}

TEST_F(Records, NoBeatComesAfterTheEnd) {
    RunRecords records(folder_.job, plan_, table_, 1, {}, {0.0, 0.0});
    records.start(0.0, {{}, {}});
    records.end(1.0, "done", "");
    records.beat(2.0);
    EXPECT_EQ(status().state, "done");
}

TEST_F(Records, ResultsCoverWhatWasBeforeAContinuation) {
    RunRecords records(folder_.job, plan_, table_, 1);
    state(1).status = AdapterStatus::done;
    records.start(5.0, {{row(1, 3.0)}, {row(1, 0.25), row(2, 0.5)}});
    records.add(AdapterId{0}, {row(2, 2.0)});
    records.write_results();
    std::istringstream lines(folder_.read("results.csv"));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) found.push_back(line);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_TRUE(found[1].starts_with("second,DONE,data,16,32,")) << found[1];
    EXPECT_NE(found[1].find(",2,0.375,0.25,,,,,200,1.000,adapters/second"), std::string::npos)
        << found[1];
    EXPECT_NE(found[2].find(",2,2.5,2,,,,,200,1.000,adapters/first"), std::string::npos)
        << found[2];
}

TEST_F(Records, BeatsWithoutABatchDoNotSlowTheMeasuredSpeed) {
    RunRecords records(folder_.job, plan_, table_, 1, {}, {0.0, never});
    records.start(0.0, {{}, {}});
    records.batch_done(batch(0));
    records.beat(1.0);
    const RunStatus before = status();
    for (int i = 0; i < 3; ++i) records.beat(2.0);
    EXPECT_EQ(status().tokens_per_second, before.tokens_per_second);
    EXPECT_EQ(status().seconds_per_round, before.seconds_per_round);
}

TEST_F(Records, ResultsThatAreNotKnownAreNotWritten) {
    folder_.write("results.csv", "of the start before");
    RunRecords records(folder_.job, plan_, table_, 1);
    records.write_results();
    records.end(1.0, "stopped", "a file STOP");
    EXPECT_EQ(folder_.read("results.csv"), "of the start before");
    EXPECT_EQ(status().state, "stopped");
}

TEST_F(Records, AdaptersThatWaitCountInTheRoundsLeft) {
    RunRecords records(folder_.job, plan_, table_, 1);
    state(0).steps = 4;
    state(1).status = AdapterStatus::waiting;
    table_.reached(4);
    folder_.job.schedule.policy = SchedulePolicy::sequential;
    records.start(0.0, {{}, {}});
    EXPECT_EQ(status().round, 4);
    EXPECT_EQ(status().rounds, 4 + 6 + 10);
    EXPECT_EQ(status().adapters[1].status, "WAITING");
    folder_.job.schedule.policy = SchedulePolicy::balanced;
    state(1).status = AdapterStatus::stopped;
    folder_.job.adapters[0].priority = 3;
    records.start(0.0, {{}, {}});
    EXPECT_EQ(status().rounds, 10);
    EXPECT_EQ(status().adapters[0].priority, 3);
}

TEST_F(Records, AddedAdaptersGetTheirRecords) {
    folder_.job.logging.tensorboard = true;
    RunRecords records(folder_.job, plan_, table_, 1);
    records.start(0.0, {{}, {}});
    records.add(AdapterId{0}, {row(1, 3.0)});
    AdapterJob third = folder_.job.adapters[0];
    third.name = "third";
    folder_.job.adapters.push_back(third);
    AdapterPlan plan = plan_.adapters[0];
    plan.name = "third";
    plan.total_steps = 12;
    plan_.adapters.push_back(plan);
    for (const AdapterId added : table_.grow()) records.begin(added, {});
    records.add(AdapterId{2}, {row(1, 2.0)});
    records.end(1.0, "stopped", "");
    EXPECT_EQ(records_in(events("third")), 2U);
    EXPECT_EQ(records_in(events("first")), 2U);
    EXPECT_EQ(status().adapters.size(), 3U);
    EXPECT_EQ(status().rounds, 12);
    EXPECT_NE(folder_.read("results.csv").find("third,WAITING"), std::string::npos);
}

TEST_F(Records, AContinuationWritesEventsAnew) {
    folder_.job.logging.tensorboard = true;
    {
        RunRecords records(folder_.job, plan_, table_, 1);
        records.start(0.0, {{}, {}});
        records.add(AdapterId{0}, {row(1, 3.0), row(2, 2.0), row(3, 1.0)});
    }
    EXPECT_EQ(records_in(events("first")), 4U);
    EXPECT_EQ(records_in(events("second")), 1U);
    folder_.write("tensorboard/first/events.out.tfevents.1.other.2", "left by an earlier process");
    RunRecords records(folder_.job, plan_, table_, 1);
    records.start(1.0, {{row(1, 3.0), row(2, 2.0)}, {}});
    EXPECT_EQ(records_in(events("first")), 3U);
    records.add(AdapterId{0}, {row(3, 1.5)});
    EXPECT_EQ(records_in(events("first")), 4U);
}

TEST_F(Records, AFileThatCannotBeWrittenDoesNotEndTheRun) {
    folder_.job.logging.tensorboard = true;
    folder_.write("tensorboard", "a file where a folder must be");
    std::filesystem::create_directories(folder_.path("status.json/in-the-way"));
    RunRecords records(folder_.job, plan_, table_, 1);
    records.start(0.0, {{}, {}});
    records.add(AdapterId{0}, {row(1, 3.0)});
    records.end(1.0, "done", "");
    EXPECT_NE(folder_.read("results.csv"), "");
}

}  // namespace
}  // namespace loratrain::test

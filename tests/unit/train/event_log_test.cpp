#include "train/records/event_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "io/files.h"
#include "support/files.h"

namespace loratrain {
namespace {

MetricsRow step_at(double elapsed, std::int32_t step) {
    MetricsRow row;
    row.step = step;
    row.loss = 1.0;
    row.elapsed_seconds = elapsed;
    return row;
}

MetricsRow evaluation_of(std::int32_t step) {
    MetricsRow row;
    row.step = step;
    row.eval_loss = 1.0;
    return row;
}

/// Of the header's and all rows' records, from the first on.
std::vector<double> times_in(const std::string& folder) {
    const std::string text =
        read_text(std::filesystem::directory_iterator(folder)->path().string());
    std::vector<double> times;
    for (std::size_t at = 0; at < text.size();) {
        std::uint64_t size = 0;
        double time = 0.0;
        std::memcpy(&size, text.data() + at, sizeof size);
        std::memcpy(&time, text.data() + at + 12 + 1, sizeof time);
        times.push_back(time);
        at += 8 + 4 + size + 4;
    }
    const double start = times.front();
    for (double& time : times) time = std::round((time - start) * 1000.0) / 1000.0;
    return times;
}

class EventLogTest : public ::testing::Test {
  protected:
    EventLogTest() {
        job_.run.dir = dir_.path();
        job_.logging.tensorboard = true;
        job_.adapters.resize(2);
        job_.adapters[0].name = "one";
        job_.adapters[1].name = "two";
    }
    std::vector<double> times(const std::string& name) const {
        return times_in(dir_.path() + "/tensorboard/" + name);
    }

    test::TempDir dir_;
    Job job_;
};

constexpr AdapterId one{0};
constexpr AdapterId two{1};

}  // namespace

/// An evaluation comes when another adapter is already past this one's next step.
TEST_F(EventLogTest, TimesOfAFileDoNotGoBack) {
    EventLog log(job_, 0.0);
    log.restart(one, {});
    log.restart(two, {});
    log.append(one, {step_at(0.25, 2)});
    log.append(two, {step_at(0.75, 3)});
    log.append(one, {evaluation_of(2), step_at(0.5, 3), step_at(1.0, 4)});
    EXPECT_EQ(times("one"), (std::vector<double>{0.0, 0.25, 0.75, 0.75, 1.0}));
    EXPECT_EQ(times("two"), (std::vector<double>{0.0, 0.75}));
}

TEST_F(EventLogTest, RowsOfOthersDoNotMoveTheKeptOnes) {
    EventLog log(job_, 2.0);
    log.restart(one, {evaluation_of(0), step_at(1.5, 1), evaluation_of(1)});
    log.restart(two, {evaluation_of(0), step_at(0.5, 1)});
    EXPECT_EQ(times("one"), (std::vector<double>{0.0, 0.0, 1.5, 1.5}));
    EXPECT_EQ(times("two"), (std::vector<double>{0.0, 0.0, 0.5}));
    log.restart(one, {step_at(0.25, 1)});
    EXPECT_EQ(times("one"), (std::vector<double>{0.0, 0.25}));
}

TEST_F(EventLogTest, MetricsOfTextsHaveTheirOwnNames) {
    EventLog log(job_, 0.0);
    MetricsRow row = step_at(0.5, 1);
    row.reward = 0.5;
    row.of_texts = {{"reward_std", 0.25}, {"rewards/format/mean", 1.0}};
    log.restart(one, {row});
    const std::filesystem::directory_iterator file(dir_.path() + "/tensorboard/one");
    const std::string text = read_text(file->path().string());
    for (const char* tag : {"train/reward", "train/reward_std", "train/rewards/format/mean"}) {
        EXPECT_NE(text.find(tag + std::string("\x15")), std::string::npos) << tag;
    }
}

}  // namespace loratrain

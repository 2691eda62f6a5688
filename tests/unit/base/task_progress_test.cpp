#include "base/task_progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <thread>

namespace loratrain {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr double never = std::numeric_limits<double>::infinity();

TEST(TaskProgress, SaysShareRateAndTimeLeft) {
    EXPECT_EQ(progress_text("writing x", 256 * mib, 1024 * mib, 2.0),
              "writing x: 25%, 256.0 MiB of 1.0 GiB, 128.0 MiB/s, 6 s left");
    EXPECT_EQ(progress_text("writing x", 1024 * mib, 1024 * mib, 8.0),
              "writing x: 100%, 1.0 GiB of 1.0 GiB, 128.0 MiB/s");
    EXPECT_EQ(progress_text("writing x", 0, 1024 * mib, 0.0),
              "writing x: 0%, 0 B of 1.0 GiB, 0 B/s");
    EXPECT_EQ(progress_text("reading x", 512 * mib, 0, 4.0), "reading x: 512.0 MiB, 128.0 MiB/s");
}

/// What a task of three parts prints where standard output is no terminal.
std::string printed(const TaskProgress::Times& times) {
    testing::internal::CaptureStdout();
    {
        TaskProgress progress("writing x", 3 * mib, times);
        for (int i = 0; i < 3; ++i) progress.add(mib);
    }
    return testing::internal::GetCapturedStdout();
}

TEST(TaskProgress, ShortTasksAreNotShown) {
    EXPECT_EQ(printed({never, never, never, never}), "");
    EXPECT_EQ(printed({0.0, 0.0, never, 0.0}), "");
}

TEST(TaskProgress, LogsLinesWhereThereIsNoTerminal) {
    const std::string once = printed({0.0, 0.0, 0.0, never});
    EXPECT_NE(once.find("writing x: 33%, 1.0 MiB of 3.0 MiB"), std::string::npos) << once;
    EXPECT_EQ(once.find("66%"), std::string::npos) << once;
    const std::string all = printed({0.0, 0.0, 0.0, 0.0});
    EXPECT_NE(all.find("66%"), std::string::npos) << all;
    EXPECT_NE(all.find("100%, 3.0 MiB of 3.0 MiB"), std::string::npos) << all;
}

/// More than was said at first: no share beyond all of it.
TEST(TaskProgress, EndsAtAll) {
    testing::internal::CaptureStdout();
    TaskProgress("writing x", mib, {0.0, 0.0, 0.0, 0.0}).add(3 * mib);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("100%, 1.0 MiB of 1.0 MiB"), std::string::npos) << text;
}

TEST(PhaseTimes, TellsTheSumAndWhatTakesATenthOfASecond) {
    PhaseTimes times;
    times.add("devices", 1.26);
    times.add("files", 0.02);
    times.add("weights", 10.0);
    times.add("devices", 0.1);
    EXPECT_EQ(times.text(), "11.4 s: devices 1.4, weights 10.0");
    EXPECT_DOUBLE_EQ(times.of("devices"), 1.36);
    EXPECT_EQ(times.of("links"), 0.0);
    EXPECT_DOUBLE_EQ(times.total(), 11.38);
}

TEST(PhaseTimes, TellsNothingButTheSumOfWhatIsShort) {
    PhaseTimes times;
    EXPECT_EQ(times.text(), "0.0 s");
    times.add("files", 0.04);
    EXPECT_EQ(times.text(), "0.0 s");
}

TEST(PhaseTimes, APhaseBeginsWhereTheOneBeforeEnded) {
    PhaseTimes times;
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    times.end("first");
    times.end("second");
    EXPECT_NE(times.text().find(" s: first "), std::string::npos) << times.text();
}

}  // namespace
}  // namespace loratrain

#include "base/phase_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace loratrain {
namespace {

TEST(PhaseTimes, TellsTheSumAndWhatTakesATenthOfASecond) {
    PhaseTimes times;
    times.add("devices", 1.26);
    times.add("files", 0.02);
    times.add("weights", 10.0);
    times.add("devices", 0.1);
    EXPECT_EQ(times.text(), "11.4 s: devices 1.4, weights 10.0");
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

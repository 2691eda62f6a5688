#include "backend/op_timer.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/timed_backend.h"
#include "base/system.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class OpTimerTest : public BackendTest {};

std::size_t place(TimedOp op) {
    return static_cast<std::size_t>(op);
}

TEST_P(OpTimerTest, CountsOpsBetweenStartAndStopAndLeavesResultsAlone) {
    const HostMatrix y = random(64, 48, 2);
    const DeviceMatrix bias(backend(), random(1, 48, 1));
    const DeviceMatrix expected(backend(), y);
    const DeviceMatrix got(backend(), y);
    const DeviceMatrix copy(backend(), y);
    OpTimer timer(backend());
    TimedBackend timed(backend(), timer);
    for (int i = 0; i < 4; ++i) backend().add_bias({expected.view(), bias.data()});
    timed.add_bias({got.view(), bias.data()});
    timer.start();
    timed.add_bias({got.view(), bias.data()});
    timed.add_bias({got.view(), bias.data()});
    timed.copy({copy.view(), got.view()});
    const OpTimes times = timer.stop();
    backend().add_bias({got.view(), bias.data()});
    EXPECT_EQ(got.download().values, expected.download().values);
    EXPECT_EQ(times.calls[place(TimedOp::add_bias)], 2);
    EXPECT_EQ(times.calls[place(TimedOp::copy)], 1);
    EXPECT_EQ(times.calls[place(TimedOp::gemm)], 0);
    EXPECT_GT(times.seconds[place(TimedOp::add_bias)], 0.0);
    EXPECT_EQ(times.of(TimedPart::elementwise), times.total());
    EXPECT_EQ(times.of(TimedPart::gemm), 0.0);
    timer.start();
    EXPECT_EQ(timer.stop().total(), 0.0);
}

TEST_P(OpTimerTest, TimesWhatLastsLongAndNothingBetween) {
    OpTimer timer(backend());
    const auto start = std::chrono::steady_clock::now();
    timer.start();
    timer.begin(TimedOp::wait_receive);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    timer.end();
    const auto pause = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const double paused = seconds_since(pause);
    timer.begin(TimedOp::wait_send);
    timer.end();
    const OpTimes times = timer.stop();
    EXPECT_GE(times.seconds[place(TimedOp::wait_receive)], 0.015);  // clocks of devices differ
    EXPECT_GE(times.seconds[place(TimedOp::wait_send)], 0.0);
    EXPECT_LT(times.total(), seconds_since(start) - 0.5 * paused);
}

TEST(TimedOps, HaveNamesOfTheirOwn) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < timed_op_count; ++i) {
        names.emplace_back(name_of(static_cast<TimedOp>(i)));
        EXPECT_EQ(std::count(names.begin(), names.end(), names.back()), 1) << names.back();
    }
    EXPECT_EQ(part_of(TimedOp::wait_send), TimedPart::communication);
    EXPECT_EQ(part_of(TimedOp::adamw), TimedPart::optimizer);
    EXPECT_STREQ(name_of(TimedOp::adamw), "adamw");
}

LORATRAIN_FOR_EACH_BACKEND(OpTimerTest);

}  // namespace
}  // namespace loratrain

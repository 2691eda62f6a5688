#include "train/stream_trainer.h"

#include <gtest/gtest.h>

#include "train/worker.h"
#include "unit/train/worker_run.h"

namespace loratrain {
namespace {

TEST(PlanningDelay, ShortWindowsAndThoseOfUnknownTimeAreFollowedAtOnce) {
    EXPECT_EQ(planning_delay(0.0, 0.0), 0.0);
    EXPECT_EQ(planning_delay(2.0, 0.1), 0.0);
    EXPECT_EQ(planning_delay(4.0, 0.1), 0.0);
}

TEST(PlanningDelay, TheNextLongWindowIsPlannedLateButInTime) {
    EXPECT_DOUBLE_EQ(planning_delay(6.0, 0.1), 5.0);
    EXPECT_DOUBLE_EQ(planning_delay(32.0, 0.1), 28.0);
    EXPECT_DOUBLE_EQ(planning_delay(32.0, 2.0), 24.0);
    EXPECT_EQ(planning_delay(32.0, 10.0), 0.0);
}

/// Has something for the run between all windows of a stream of four rounds.
struct AlwaysGrowing : Service {
    bool delays_planning() const override { return true; }
    std::int32_t last_round(const Progress& /*planned*/) const override { return 4; }
    bool grow() override {
        ++times;
        return true;
    }
    int times = 0;
};

class StreamTrainerRun : public ::testing::Test, protected test::WorkerRun {};

TEST_F(StreamTrainerRun, EveryServiceMayGrowBetweenTwoWindows) {
    add(8);
    make();
    loop.reset();
    Worker worker(*parts, *ranks);
    AlwaysGrowing one;
    AlwaysGrowing other;
    worker.stream.serve({&one, &other});
    worker.adapters.admit({first});
    worker.adapters.begin_stream();
    EXPECT_EQ(worker.stream.run(), 4);
    EXPECT_EQ(ranks->rounds_of(first), (Steps{0, 1, 2, 3}));
    EXPECT_EQ(one.times, 1);
    EXPECT_EQ(other.times, 1);
}

}  // namespace
}  // namespace loratrain

#include "train/orders/stop_conditions.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace loratrain {
namespace {

Job job_in(const std::string& dir) {
    Job job;
    job.run.dir = dir;
    return job;
}

TEST(InterruptNotice, SaysOnceThatAStopTakesLongerThanCtrlCAllows) {
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    StopConditions stop(job_in("runs/slow"), std::nullopt);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    EXPECT_EQ(stop.interrupt_notice(), "");
    stop.window_took(0.6);
    EXPECT_EQ(stop.interrupt_notice(), "");
    stop.checkpoint_took(0.6);
    stop.window_took(8.0);
    const std::string notice = stop.interrupt_notice();
    EXPECT_NE(notice.find("mpirun waits 1 s, a stop with a checkpoint takes up to 9 s"),
              std::string::npos)
        << notice;
    EXPECT_NE(notice.find("touch runs/slow/STOP"), std::string::npos) << notice;
    EXPECT_EQ(stop.interrupt_notice(), "");
}

TEST(InterruptNotice, NoneWithoutMpirun) {
    unsetenv("OMPI_COMM_WORLD_SIZE");
    StopConditions stop(job_in("runs/slow"), std::nullopt);
    stop.window_took(8.0);
    EXPECT_EQ(stop.interrupt_notice(), "");
}

}  // namespace
}  // namespace loratrain
